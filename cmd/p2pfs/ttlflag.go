package main

import (
	"errors"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/p2pfs/p2pfs/node"
)

// ttlFlag is how long something lives: a duration as Go writes it, days as in 7d,
// or a plain number of seconds.
type ttlFlag struct {
	d   time.Duration
	set bool
}

// String implements pflag.Value.
func (f *ttlFlag) String() string {
	if f.d == 0 {
		return ""
	}
	return f.d.String()
}

// Type implements pflag.Value.
func (*ttlFlag) Type() string { return "TIME" }

// Set implements pflag.Value.
func (f *ttlFlag) Set(s string) error {
	d, err := parseTTL(s)
	if err == nil {
		err = node.CheckKeyTTL(d)
	}
	if err != nil {
		return err
	}
	f.d, f.set = d, true
	return nil
}

func parseTTL(s string) (time.Duration, error) {
	number, unit := s, time.Second
	if days, ok := strings.CutSuffix(s, "d"); ok {
		number, unit = days, 24*time.Hour
	}
	n, err := strconv.ParseInt(number, 10, 64)
	switch {
	case err == nil && (n < 0 || n > int64(math.MaxInt64/unit)):
		return 0, errors.New("out of range")
	case err == nil:
		return time.Duration(n) * unit, nil
	}
	d, err := time.ParseDuration(s)
	if err != nil {
		return 0, errors.New("want a time as in 30m, 24h or 7d, or seconds")
	}
	return d, nil
}
