package main

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"time"
)

// small makes N files of SIZE bytes in DIR, named after WHO, one after the
// other; with "sync" each is made durable before it is closed. It prints the
// seconds that each took.
func small(args []string) error {
	dir, who := args[0], args[1]
	n, err := strconv.Atoi(args[2])
	if err != nil {
		return err
	}
	size, err := strconv.Atoi(args[3])
	if err != nil {
		return err
	}
	data := randomPiece(who, size)
	for i := range n {
		began := time.Now()
		if err := put(filepath.Join(dir, fmt.Sprintf("%s-%06d", who, i)), data, 1, len(args) > 4); err != nil {
			return err
		}
		fmt.Println(time.Since(began).Seconds())
	}
	return nil
}

// bigPiece is how much one write of big brings.
const bigPiece = 4 << 20

// big writes a new file of SIZE bytes and closes it; with "sync" it is made
// durable before. It prints the seconds that it took.
func big(args []string) error {
	size, err := strconv.ParseInt(args[1], 10, 64)
	if err != nil {
		return err
	}
	data := randomPiece(args[0], bigPiece)
	began := time.Now()
	if err := put(args[0], data, size/bigPiece, len(args) > 2); err != nil {
		return err
	}
	fmt.Println(time.Since(began).Seconds())
	return nil
}

func randomPiece(seed string, size int) []byte {
	var key [32]byte
	copy(key[:], seed)
	data := make([]byte, size)
	_, _ = rand.NewChaCha8(key).Read(data) // it never fails
	return data
}

// put writes a file, the same bytes some times over.
func put(path string, data []byte, times int64, sync bool) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	for range times {
		if _, err := f.Write(data); err != nil {
			f.Close()
			return err
		}
	}
	if sync {
		if err := f.Sync(); err != nil {
			f.Close()
			return err
		}
	}
	return f.Close()
}
