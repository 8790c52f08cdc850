//go:build long

package integration

import (
	"testing"
	"time"
)

func TestLongFsxOf50000Operations(t *testing.T) {
	for _, mode := range passthroughModes {
		t.Run("passthrough="+mode, func(t *testing.T) {
			t.Parallel()
			fsx(t, 50_000, uint64(time.Now().UnixNano()), mode)
		})
	}
}

func TestLongStressNGForAMinute(t *testing.T) { stressNG(t, time.Minute) }

func TestLongANameIsReplaced2000Times(t *testing.T) { replaceUnderReaders(t, 2000) }
