// Package leaktest ends the tests of a package: no goroutine may be left.
package leaktest

import (
	"testing"
	"time"

	"go.uber.org/goleak"
)

// patience is how long goroutines that were told to end may take to do so on a
// machine that has much else to do. One that was not told stays for ever.
const patience = 30 * time.Second

// Main runs the tests and exits: with an error if one fails, or goroutines stay.
func Main(m *testing.M) { goleak.VerifyTestMain(patient{m}) }

// patient runs tests and gives what they leave behind time to end.
type patient struct{ m *testing.M }

// Run implements goleak.TestingM.
func (p patient) Run() int {
	code := p.m.Run()
	if code == 0 {
		_ = Find() // whatever it says is asked once more
	}
	return code
}

// Find returns an error if goroutines stay that options do not except.
func Find(options ...goleak.Option) (err error) {
	for end := time.Now().Add(patience); time.Now().Before(end); {
		if err = goleak.Find(options...); err == nil {
			return nil
		}
	}
	return err
}
