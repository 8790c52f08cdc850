package integration

import (
	"bufio"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/p2pfs/p2pfs/integration/oracle"
)

// The agent is a child process that does the steps of one node below its
// mountpoint and looks at what it shows: one JSON request and answer a line.
type agentRequest struct {
	Step  *oracle.Step    `json:"step,omitempty"`
	Walk  bool            `json:"walk,omitempty"`
	Look  string          `json:"look,omitempty"` // one path, by lstat
	Open  string          `json:"open,omitempty"` // one path, read to its end
	Whole map[string]bool `json:"whole,omitempty"`
	Some  map[string]bool `json:"some,omitempty"`
}

type agentAnswer struct {
	Result oracle.Result          `json:"result"`
	Names  map[string]oracle.Seen `json:"names,omitempty"`
}

// agentMain is the child: MOUNTPOINT.
func agentMain(args []string) error {
	in, out := json.NewDecoder(os.Stdin), json.NewEncoder(os.Stdout)
	for {
		var q agentRequest
		if err := in.Decode(&q); err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
		var a agentAnswer
		switch {
		case q.Step != nil:
			a.Result = oracle.Perform(args[0], *q.Step)
		case q.Walk:
			a.Names, a.Result = oracle.Walk(args[0], q.Whole, q.Some)
		case q.Open != "":
			a.Names = map[string]oracle.Seen{q.Open: oracle.Open(filepath.Join(args[0], q.Open))}
		default:
			a.Names = map[string]oracle.Seen{q.Look: oracle.Look(filepath.Join(args[0], q.Look), false, false)}
		}
		if err := out.Encode(a); err != nil {
			return err
		}
	}
}

type agent struct {
	t    testing.TB
	proc *process
	in   *json.Encoder
	out  *bufio.Reader
}

func startAgent(t testing.TB, mnt string) *agent {
	t.Helper()
	cmd := child("agent", mnt)
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	p, out := spawnPiped(t, cmd)
	t.Cleanup(func() {
		p.kill()
		_ = out.Close()
	})
	return &agent{t, p, json.NewEncoder(in), bufio.NewReader(out)}
}

// pending is an answer that has not come yet.
type pending struct {
	a      *agent
	q      agentRequest
	answer chan error
	got    agentAnswer
}

func (a *agent) ask(q agentRequest) *pending {
	p := &pending{a: a, q: q, answer: make(chan error, 1)}
	err := a.in.Encode(q)
	go func() {
		line, rerr := a.out.ReadBytes('\n')
		if err == nil {
			err = rerr
		}
		if err == nil {
			err = json.Unmarshal(line, &p.got)
		}
		p.answer <- err
	}()
	return p
}

// agentLimit bounds every answer: no call on a mount takes longer.
const agentLimit = 3 * time.Minute

func (p *pending) wait() agentAnswer {
	p.a.t.Helper()
	select {
	case err := <-p.answer:
		require.NoError(p.a.t, err, "the agent ended")
	case <-time.After(agentLimit):
		stacks := ""
		tasks, _ := filepath.Glob(filepath.Join("/proc", itoa(p.a.proc.pid()), "task/*/stack"))
		for _, task := range tasks {
			b, _ := os.ReadFile(task)
			stacks += string(b) + "\n"
		}
		q, _ := json.Marshal(p.q)
		require.Failf(p.a.t, "a call on the mount hangs", "%s after %v; kernel stacks:\n%s", q, agentLimit, stacks)
	}
	return p.got
}
