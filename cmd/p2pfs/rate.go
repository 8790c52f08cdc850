package main

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// rateFlag is a flag that takes the rate of a link in bits per second.
type rateFlag struct{ bits int64 }

func (f *rateFlag) Type() string   { return "RATE" }
func (f *rateFlag) String() string { return formatRate(f.bits) }

func (f *rateFlag) Set(s string) (err error) {
	f.bits, err = parseRate(s)
	return err
}

// rateUnits are those of links: each 1000 times the one before.
var rateUnits = []struct {
	name  string
	scale float64
}{{"gbit", 1e9}, {"mbit", 1e6}, {"kbit", 1e3}, {"bit", 1}}

// parseRate reads a number of bits per second: 150mbit, 1gbit, 2.5Gbit/s.
func parseRate(s string) (int64, error) {
	text := strings.TrimSuffix(strings.ToLower(strings.ReplaceAll(s, " ", "")), "/s")
	for _, u := range rateUnits {
		number, ok := strings.CutSuffix(text, u.name)
		if !ok {
			continue
		}
		n, err := strconv.ParseFloat(number, 64)
		if bits := n * u.scale; err == nil && bits >= 1000 && bits < math.MaxInt64/1e6 {
			return int64(bits), nil
		}
		break
	}
	return 0, fmt.Errorf("%q is not the rate of a link; write one as in 150mbit or 1gbit", s)
}

// formatRate is a rate for people and for parseRate.
func formatRate(bits int64) string {
	for _, u := range rateUnits {
		if float64(bits) >= u.scale {
			return strconv.FormatFloat(math.Round(float64(bits)/u.scale*10)/10, 'f', -1, 64) + u.name
		}
	}
	return "0bit"
}
