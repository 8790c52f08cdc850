package devices

import (
	"errors"
	"fmt"
)

// A Problem is one reason why RDMA cannot be had, or not as well as it could.
type Problem struct {
	Code  Code   `json:"code"`
	Where string `json:"where,omitempty"` // device or port, as in mlx5_0 or mlx5_0:1
	What  string `json:"what"`            // a sentence without its full stop
	Fix   string `json:"fix"`             // what to do, one sentence without its full stop
	Fatal bool   `json:"fatal"`           // what it is about cannot be used at all
}

// Code names a kind of problem, for programs.
type Code string

const (
	NoDevice      Code = "no-device"
	NoActivePort  Code = "no-active-port"
	NoPermission  Code = "no-permission"
	NoVerbs       Code = "no-verbs"
	IWARP         Code = "iwarp"
	UnknownDevice Code = "unknown-device"
	BadGIDIndex   Code = "bad-gid-index"
	NoGID         Code = "no-gid"
	LinkLocalOnly Code = "link-local-only"
	MTUMismatch   Code = "mtu-mismatch"
	SmallMTU      Code = "small-mtu"
	SmallMemlock  Code = "small-memlock"
	SmallMemory   Code = "small-rdma-memory"
)

// Error says what is wrong and what to do.
func (p Problem) Error() string {
	where := ""
	if p.Where != "" {
		where = p.Where + ": "
	}
	return fmt.Sprintf("%s%s; %s", where, p.What, p.Fix)
}

// join makes one error of problems; nil if there are none.
func join(all []Problem) error {
	var errs []error
	for _, p := range all {
		errs = append(errs, p)
	}
	return errors.Join(errs...)
}
