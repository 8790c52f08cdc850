package main

import (
	"bufio"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
)

func firsts(args []string) error {
	f, err := os.Open(args[0])
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	length, n, seed, err := three(args[1:])
	if err != nil {
		return err
	}
	rng, buf := rand.New(rand.NewPCG(uint64(seed), 1)), make([]byte, length)
	return timed(n, func() error {
		_, err := f.ReadAt(buf, rng.Int64N(info.Size()/length)*length)
		return err
	})
}

func stats(args []string) error {
	n, err := strconv.ParseInt(args[1], 10, 64)
	if err != nil {
		return err
	}
	seed, err := strconv.ParseUint(args[2], 10, 64)
	if err != nil {
		return err
	}
	var names []string
	for s := bufio.NewScanner(os.Stdin); s.Scan(); {
		names = append(names, s.Text())
	}
	rng := rand.New(rand.NewPCG(seed, 1))
	rng.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
	i := 0
	return timed(n, func() error {
		i++
		_, err := os.Lstat(filepath.Join(args[0], names[i]))
		return err
	})
}

func checksum(args []string) error {
	gib, err := strconv.Atoi(args[0])
	if err != nil {
		return err
	}
	table, buf, sum := crc32.MakeTable(crc32.Castagnoli), make([]byte, 64<<20), uint32(0)
	for i := range buf {
		buf[i] = byte(i * i)
	}
	for range gib * 16 {
		sum = crc32.Update(sum, table, buf)
	}
	fmt.Println(sum)
	return nil
}

func walk(args []string) error {
	f, err := os.Open(args[0])
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	data, err := syscall.Mmap(int(f.Fd()), 0, int(info.Size()), syscall.PROT_READ, syscall.MAP_SHARED)
	if err != nil {
		return err
	}
	sum := 0
	if len(args) > 1 {
		for _, page := range rand.New(rand.NewPCG(1, 1)).Perm(len(data) / 4096) {
			sum += int(data[page*4096])
		}
	} else {
		for off := 0; off < len(data); off += 4096 {
			sum += int(data[off])
		}
	}
	fmt.Println(sum)
	return nil
}
