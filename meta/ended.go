package meta

import (
	"context"
	"time"
)

// Ended returns why a context has ended, or nil. Unlike its Err it also says so
// in the moments between its deadline and the timer that ends it: connections keep
// to the deadline by themselves, and may be first.
func Ended(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if d, ok := ctx.Deadline(); ok && !time.Now().Before(d) {
		return context.DeadlineExceeded
	}
	return nil
}
