package integration

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/p2pfs/p2pfs/integration/oracle"
)

// roundName is what round i publishes: the same name again and again, or a new
// one.
func roundName(i int) string {
	if i%3 == 1 {
		return fmt.Sprintf("new%d", i)
	}
	return "same"
}

// roundGone is the name that round i removes, "" for none.
func roundGone(i int) string {
	if i -= roundsKept; i >= 0 && roundName(i) != "same" {
		return roundName(i)
	}
	return ""
}

func roundData(i int) []byte {
	size := int64(8 + i*37%5000)
	if i%50 == 0 {
		size += 3 * smallBlock
	}
	data := oracle.Bytes(uint64(i), size)
	binary.LittleEndian.PutUint64(data, uint64(i))
	return data
}

// roundsKept is after how many rounds a new name is removed again.
const roundsKept = 300

// The ends of the pipes of both children: where they hear and where they tell.
const (
	heard = 3
	told  = 4
)

// roundWriterMain is the child that publishes: DIRECTORY ROUNDS. It tells the
// reader of each publish when its close has returned, and waits for its word.
// It prints the time of a round, from the first open to the word.
func roundWriterMain(args []string) error {
	rounds, err := strconv.Atoi(args[1])
	if err != nil {
		return err
	}
	in, out := os.NewFile(heard, "heard"), os.NewFile(told, "told")
	word := make([]byte, 1)
	var took []time.Duration
	for i := range rounds {
		name, data := roundName(i), roundData(i)
		began := time.Now()
		if err := roundPublish(filepath.Join(args[0], name), data, i%7 == 3); err != nil {
			return fmt.Errorf("round %d: %w", i, err)
		}
		if gone := roundGone(i); gone != "" {
			if err := os.Remove(filepath.Join(args[0], gone)); err != nil {
				return fmt.Errorf("round %d: %w", i, err)
			}
		}
		if _, err := out.Write(word); err != nil {
			return err
		}
		if _, err := in.Read(word); err != nil {
			return err
		}
		took = append(took, time.Since(began))
	}
	return json.NewEncoder(os.Stdout).Encode(took)
}

func roundPublish(path string, data []byte, rename bool) error {
	if !rename {
		return os.WriteFile(path, data, 0o644)
	}
	temp := path + ".next"
	if err := os.WriteFile(temp, data, 0o644); err != nil {
		return err
	}
	return os.Rename(temp, path)
}

// roundsSeen is what the reader found.
type roundsSeen struct {
	Stale, Missing, Failed, Undead int
	First                          string
}

// roundReaderMain is the child that opens what it was told of: DIRECTORY
// ROUNDS. It prints what it found.
func roundReaderMain(args []string) error {
	rounds, err := strconv.Atoi(args[1])
	if err != nil {
		return err
	}
	in, out := os.NewFile(heard, "heard"), os.NewFile(told, "told")
	word := make([]byte, 1)
	var seen roundsSeen
	for i := range rounds {
		if _, err := in.Read(word); err != nil {
			return err
		}
		if wrong := seen.look(args[0], i); wrong != "" && seen.First == "" {
			seen.First = fmt.Sprintf("round %d: %s", i, wrong)
		}
		if _, err := out.Write(word); err != nil {
			return err
		}
	}
	return json.NewEncoder(os.Stdout).Encode(seen)
}

func (s *roundsSeen) look(dir string, i int) string {
	name, want := roundName(i), roundData(i)
	got, err := os.ReadFile(filepath.Join(dir, name))
	switch {
	case errors.Is(err, os.ErrNotExist):
		s.Missing++
		return name + " is missing"
	case err != nil:
		s.Failed++
		return err.Error()
	case !bytes.Equal(got, want):
		s.Stale++
		of := uint64(0)
		if len(got) >= 8 {
			of = binary.LittleEndian.Uint64(got)
		}
		return fmt.Sprintf("%s has %d bytes of round %d", name, len(got), of)
	}
	gone := roundGone(i)
	if gone == "" {
		return ""
	}
	if f, err := os.Open(filepath.Join(dir, gone)); err == nil {
		_ = f.Close()
		s.Undead++
		return gone + " was removed, and can be opened"
	} else if !errors.Is(err, os.ErrNotExist) {
		s.Failed++
		return err.Error()
	}
	return ""
}

// R1 N1
func TestWhatWasPublishedIsThereWhenAnotherNodeIsTold(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	a, b := c.start("a"), c.start("b")
	must(t, "mkdir", a.path("d"))
	toB, fromA, err := os.Pipe()
	require.NoError(t, err)
	toA, fromB, err := os.Pipe()
	require.NoError(t, err)
	writer, reader := child("round-writer", a.path("d"), itoa(publishRounds)), child("round-reader", b.path("d"), itoa(publishRounds))
	writer.ExtraFiles, reader.ExtraFiles = []*os.File{toA, fromA}, []*os.File{toB, fromB}
	began := time.Now()
	w, r := launch(t, writer), launch(t, reader)
	for _, f := range []io.Closer{toA, toB, fromA, fromB} {
		require.NoError(t, f.Close())
	}
	limit := max(commandLimit, publishRounds*600*time.Millisecond) // for a hang, not for speed
	wrote, read := w.finish(t, limit), r.finish(t, limit)
	require.Zero(t, wrote.code, "%s", wrote)
	require.Zero(t, read.code, "%s", read)

	var took []time.Duration
	require.NoError(t, json.Unmarshal(wrote.out, &took))
	require.Len(t, took, publishRounds)
	t.Logf("report: %d rounds in %v: a round took %v in the middle, %v at the 99th of 100, %v at most", publishRounds, time.Since(began).Round(time.Millisecond),
		quantile(took, 0.5), quantile(took, 0.99), quantile(took, 1))
	var seen roundsSeen
	require.NoError(t, json.Unmarshal(read.out, &seen))
	require.Equal(t, roundsSeen{}, seen)
}

func quantile(of []time.Duration, q float64) time.Duration {
	sorted := slices.Sorted(slices.Values(of))
	return sorted[min(len(sorted)-1, int(q*float64(len(sorted))))].Round(time.Microsecond)
}
