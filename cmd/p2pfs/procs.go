package main

import (
	"os"
	"runtime"
)

// leastProcs is what a daemon has at least of what Go calls processors.
const leastProcs = 4

// roomToWait lets a daemon on a small machine run more than one goroutine a
// core. A call that waits for the disk or for the kernel's next request takes
// its place among those that run along with it, until the scheduler has noticed:
// with two places the cores stand idle then. A number that the user has given
// stays.
func roomToWait() {
	if os.Getenv("GOMAXPROCS") == "" && runtime.GOMAXPROCS(0) < leastProcs {
		runtime.GOMAXPROCS(leastProcs)
	}
}
