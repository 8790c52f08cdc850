package main

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// sizeUnits are the letters of sizes, each 1024 times the one before.
const sizeUnits = "KMGTPE"

// parseSize reads a number of bytes: 1048576, 64MiB, 10G, 1.5T. K and KiB are
// 1024 bytes, KB is 1000.
func parseSize(s string) (int64, error) {
	digits := strings.TrimRight(s, "KMGTPEkmgtpeiIbB ")
	n, err := strconv.ParseFloat(strings.TrimSpace(digits), 64)
	if err != nil || n < 0 || math.IsNaN(n) {
		return 0, fmt.Errorf("%q is not a size; write bytes or a unit, as in 1048576, 64MiB or 10G", s)
	}
	unit := strings.ToUpper(strings.TrimSpace(s[len(digits):]))
	scale := 1.0
	if unit != "" && unit != "B" {
		power := strings.IndexByte(sizeUnits, unit[0]) + 1
		base := 1024.0
		switch unit[1:] {
		case "", "IB":
		case "B":
			base = 1000
		default:
			power = 0
		}
		if power == 0 {
			return 0, fmt.Errorf("%q has an unknown unit; the units are K, M, G, T, P and E", s)
		}
		scale = math.Pow(base, float64(power))
	}
	if n*scale >= math.MaxInt64 {
		return 0, fmt.Errorf("%q is too large", s)
	}
	if whole, err := strconv.ParseInt(digits, 10, 64); err == nil && scale == 1 {
		return whole, nil // exact above 2^53
	}
	return int64(n * scale), nil
}

// formatSize is a size for people.
func formatSize(n int64) string {
	if n < 1024 && n > -1024 {
		return fmt.Sprintf("%d B", n)
	}
	f, unit := float64(n), -1
	for f >= 1023.95 || f <= -1023.95 {
		f /= 1024
		unit++
	}
	if f == math.Trunc(f) {
		return fmt.Sprintf("%.0f %ciB", f, sizeUnits[unit])
	}
	return fmt.Sprintf("%.1f %ciB", f, sizeUnits[unit])
}

// sizeFlag is a flag that takes a size.
type sizeFlag struct {
	bytes int64
	set   bool
}

func (f *sizeFlag) Type() string { return "SIZE" }

func (f *sizeFlag) String() string {
	if !f.set {
		return ""
	}
	return formatSize(f.bytes)
}

func (f *sizeFlag) Set(s string) (err error) {
	f.bytes, err = parseSize(s)
	f.set = err == nil
	return err
}

// spaceFlag is a flag that takes a size or a share of a disk in percent.
type spaceFlag struct {
	bytes    int64
	fraction float64
	set      bool
	text     string
}

func (f *spaceFlag) Type() string   { return "SIZE|N%" }
func (f *spaceFlag) String() string { return f.text }

func (f *spaceFlag) Set(s string) error {
	f.bytes, f.fraction = 0, 0
	if percent, ok := strings.CutSuffix(s, "%"); ok {
		p, err := strconv.ParseFloat(strings.TrimSpace(percent), 64)
		if err != nil || !(p >= 0 && p < 100) {
			return fmt.Errorf("%q is not a share; write one from 0%% to 99%%", s)
		}
		f.fraction = p / 100
	} else {
		n, err := parseSize(s)
		if err != nil {
			return err
		}
		f.bytes = n
	}
	f.set, f.text = true, s
	return nil
}
