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
	for end := time.Now().Add(patience); code == 0 && time.Now().Before(end); {
		if goleak.Find() == nil {
			break
		}
	}
	return code
}
