package integration

import (
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// R1 W4 N3
func TestANameThatIsReplacedAgainAndAgainIsNeverMissingOrMixed(t *testing.T) {
	t.Parallel()
	replaceUnderReaders(t, 100)
}

func replaceUnderReaders(t *testing.T, versions int) {
	t.Helper()
	if os.Getenv(plainEnv) != "" {
		return // a disk shows what is half written
	}
	for _, how := range []string{"rename", "truncate"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			p := newPair(t)
			a, b := p.mkdir(t, "d")
			python(t, "rounds.py", "begin", a)
			watchers := []*running{look(t, "rounds.py", "look", b), look(t, "rounds.py", "look", b)}
			if how == "rename" { // else it shows what has been written so far (R4)
				watchers = append(watchers, look(t, "rounds.py", "look", a))
			}
			limit := max(commandLimit, time.Duration(versions)*3*time.Second) // for a hang, not for speed
			r := runCmd(t, limit, exec.Command(world.python, pythonArgs("rounds.py", []string{"replace", a, itoa(versions), how})...))
			require.Zero(t, r.code, "%s", r)
			for _, w := range watchers {
				t.Log(how, w.succeed(t))
			}
		})
	}
}
