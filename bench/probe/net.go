package main

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"strconv"
	"time"
)

// next returns the address whose port is one higher.
func next(addr string) (string, error) {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return "", err
	}
	n, err := strconv.Atoi(port)
	return net.JoinHostPort(host, strconv.Itoa(n+1)), err
}

func serve(args []string) error {
	addr, file := args[0], args[1]
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	ranged, err := next(addr)
	if err != nil {
		return err
	}
	failed := make(chan error, 2)
	go func() {
		failed <- http.ListenAndServe(ranged, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { http.ServeFile(w, r, file) }))
	}()
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				failed <- err
				return
			}
			go send(conn, file)
		}
	}()
	return <-failed
}

func send(conn net.Conn, file string) {
	defer conn.Close()
	f, err := os.Open(file)
	if err != nil {
		return
	}
	defer f.Close()
	_, _ = io.Copy(conn, f) // sendfile
}

func receive(args []string) error {
	conn, err := net.Dial("tcp", args[0])
	if err != nil {
		return err
	}
	defer conn.Close()
	out, err := os.Create(args[1])
	if err != nil {
		return err
	}
	n, err := io.Copy(out, conn) // splice
	if err != nil {
		return err
	}
	fmt.Println(n)
	return out.Close()
}

func ranges(args []string) error {
	ranged, err := next(args[0])
	if err != nil {
		return err
	}
	size, length, n, err := three(args[1:])
	if err != nil {
		return err
	}
	rng := rand.New(rand.NewPCG(1, 1))
	buf := make([]byte, length)
	return timed(n, func() error {
		off := rng.Int64N(size/length) * length
		req, err := http.NewRequest(http.MethodGet, "http://"+ranged+"/", nil)
		if err != nil {
			return err
		}
		req.Header.Set("Range", fmt.Sprintf("bytes=%d-%d", off, off+length-1))
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		if resp.StatusCode != http.StatusPartialContent {
			return errors.New(resp.Status)
		}
		_, err = io.ReadFull(resp.Body, buf)
		_, _ = io.Copy(io.Discard, resp.Body)
		return err
	})
}

// timed prints the seconds of each of n calls.
func timed(n int64, call func() error) error {
	for range n {
		began := time.Now()
		if err := call(); err != nil {
			return err
		}
		fmt.Printf("%.6f\n", time.Since(began).Seconds())
	}
	return nil
}

func three(args []string) (a, b, c int64, err error) {
	for i, to := range []*int64{&a, &b, &c} {
		if *to, err = strconv.ParseInt(args[i], 10, 64); err != nil {
			return
		}
	}
	return
}
