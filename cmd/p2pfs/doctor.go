package main

import (
	"fmt"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/p2pfs/p2pfs/node"
	"github.com/p2pfs/p2pfs/node/doctor"
)

// doctorFlags are what mount would be told.
type doctorFlags struct {
	config   doctor.Config
	memory   sizeFlag
	gidIndex int
}

func (a *app) doctorCommand() *cobra.Command {
	f := doctorFlags{memory: sizeFlag{bytes: node.DefaultRDMAMemory}, gidIndex: -1}
	c := &cobra.Command{
		Use:   "doctor [--protocol auto|rdma|tcp] [--rdma-device DEVICE]... [--cache-dir DIR]...",
		Short: "Look at this machine and say what is wrong with it, and what to do",
		Long: `Look at this machine: its RDMA devices, what would be chosen of them and why, FUSE,
limits, and the disks of the cache. What is wrong is listed with what to do about it.
It asks no node: it can be run before the first mount, and as the user that p2pfs
will run as. To see what the kernel's FUSE offers it mounts an empty file system in a
directory of its own for a moment.

Its flags are flags of mount, and the variables P2PFS_* that set those set these.
It fails if what was asked for cannot work. A machine without RDMA is no failure
unless --protocol is rdma.

` + exitCodesHelp,
		Example: `  p2pfs doctor
  p2pfs doctor --protocol rdma --rdma-device mlx5_0 --rdma-memory 4GiB --json`,
		Args: argCount(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			// The variables that tell mount tell doctor.
			if err := new(mountSettings).fromEnvironment(cmd.Flags(), a.lookup); err != nil {
				return err
			}
			return a.doctor(f, cmd.Flags().Changed("gid-index"))
		},
	}
	fl := c.Flags()
	fl.StringVar(&f.config.Protocol, "protocol", doctor.ProtocolAuto, "how blocks are to be moved, `MODE`: auto, rdma or tcp")
	fl.StringArrayVar(&f.config.Want.Devices, "rdma-device", nil, "use this RDMA `DEVICE` or port of one, as in mlx5_0 or mlx5_0:1; may be given several times (default: all that work)")
	fl.Var(&f.memory, "rdma-memory", "memory that RDMA may register (default 1GiB)")
	fl.IntVar(&f.gidIndex, "gid-index", -1, "use the GID with this `INDEX` on every port (default: MC_GID_INDEX, else the best)")
	fl.StringArrayVar(&f.config.CacheDirs, "cache-dir", nil, "look at the disk of this cache `DIR`; may be given several times (default /var/cache/p2pfs, for users ~/.cache/p2pfs)")
	fl.SortFlags = false
	return c
}

func (a *app) doctor(f doctorFlags, indexGiven bool) error {
	c := f.config
	c.Memory, c.Want.GIDIndex, c.Machine = f.memory.bytes, f.gidIndex, doctor.Host()
	if a.machine != nil {
		c.Machine = *a.machine
	}
	if v := a.env("MC_GID_INDEX"); v != "" && !indexGiven {
		n, err := strconv.Atoi(v)
		if err != nil {
			return usagef("MC_GID_INDEX: %q is not a number", v)
		}
		c.Want.GIDIndex = n
	}
	if err := c.Validate(); err != nil {
		return usageError{err}
	}
	if len(c.CacheDirs) == 0 {
		dir, err := defaultDir("/var/cache", "XDG_CACHE_HOME", ".cache", "")
		if err != nil {
			return fmt.Errorf("find the cache directory (give --cache-dir): %w", err)
		}
		c.CacheDirs = []string{dir}
	}
	for i, dir := range c.CacheDirs {
		abs, err := filepath.Abs(dir)
		if dir == "" || err != nil {
			return usagef("--cache-dir: %q is no directory", dir)
		}
		c.CacheDirs[i] = abs
	}
	r, err := doctor.Examine(c)
	if err != nil {
		return err
	}
	if a.json {
		err = a.printJSON(r)
	} else {
		err = a.printDoctor(r)
	}
	if err == nil && r.Fatal() {
		err = fmt.Errorf("p2pfs cannot work here as it was asked to; see the problems above")
	}
	return err
}

func (a *app) printDoctor(r doctor.Report) error {
	var t table
	t.pair("blocks", "would be moved by %s: %s", r.Protocol, r.Reason)
	t.pair("rdma", "%s", rdmaState(r.RDMA))
	t.pair("fuse", "%s", fuseState(r.FUSE))
	t.pair("limits", "%s of locked memory, %s open files", limitSize(r.Limits.Memlock), limitCount(r.Limits.OpenFiles))
	for _, d := range r.Disks {
		t.pair("cache", "%s", diskState(d))
	}
	if err := t.print(a.out); err != nil {
		return err
	}
	if err := a.printDevices(r.RDMA); err != nil {
		return err
	}
	return a.printProblems(r.Problems)
}

func rdmaState(r doctor.RDMA) string {
	switch {
	case !r.Built:
		return "not built into this program; " + plural(int64(len(r.Devices)), "device")
	case r.Library != "loaded":
		return r.Library
	}
	return "built in, libibverbs loaded; " + plural(int64(len(r.Devices)), "device")
}

func fuseState(f doctor.FUSE) string {
	if f.Protocol == "" {
		return f.Device
	}
	tool := "fusermount3 at " + f.Fusermount
	if f.Fusermount == "" {
		tool = "no fusermount3"
	}
	return fmt.Sprintf("protocol %s, passthrough %s, %s", f.Protocol, f.Passthrough, tool)
}

func diskState(d doctor.Disk) string {
	if d.FileSystem == "" {
		return d.Dir
	}
	share := ""
	if d.Reflink {
		share = ", with reflinks"
	}
	return fmt.Sprintf("%s on %s%s, %s free of %s", d.Dir, d.FileSystem, share, formatSize(d.Free), formatSize(d.Total))
}

func limitSize(n int64) string {
	if n < 0 {
		return "any amount"
	}
	return formatSize(n)
}

func limitCount(n int64) string {
	if n < 0 {
		return "any number of"
	}
	return strconv.FormatInt(n, 10)
}

// printDevices prints a line for each port and each of its GIDs.
func (a *app) printDevices(r doctor.RDMA) error {
	if len(r.Devices) == 0 {
		return nil
	}
	chosen := map[string]string{} // "rxe0:1 3": why
	for i, rail := range r.Rails {
		chosen[fmt.Sprint(rail.Name, " ", rail.GID.Index)] = fmt.Sprintf("rail %d: %s", i+1, rail.Why)
	}
	var t table
	t.row("PORT", "STATE", "LINK", "RATE", "NETDEV", "MTU", "GID", "TYPE", "ADDRESS", "CHOSEN")
	for _, d := range r.Devices {
		for _, p := range d.Ports {
			name := d.Name + ":" + strconv.Itoa(p.Number)
			cells := []string{name, orDash(p.State), p.Link, orDash(rateOf(p.Rate)), orDash(p.Netdev), mtuOf(p)}
			if len(p.GIDs) == 0 {
				t.row(append(cells, "-", "-", "-", "-")...)
			}
			for _, g := range p.GIDs {
				t.row(append(cells, strconv.Itoa(g.Index), g.Type, g.IP, orDash(chosen[fmt.Sprint(name, " ", g.Index)]))...)
				cells = []string{"", "", "", "", "", ""}
			}
		}
	}
	if err := a.printf("\n"); err != nil {
		return err
	}
	return t.print(a.out)
}

// rateOf cuts the lanes off "100 Gb/sec (4X EDR)".
func rateOf(s string) string {
	rate, _, _ := strings.Cut(s, " (")
	return rate
}

// mtuOf shows an RDMA MTU and the interface's that it must fit.
func mtuOf(p doctor.Port) string {
	if p.MTU == 0 {
		return "-"
	}
	return fmt.Sprintf("%d (%d)", p.MTU, p.NetMTU)
}

func (a *app) printProblems(all []doctor.Problem) error {
	if len(all) == 0 {
		return a.printf("\nno problems found\n")
	}
	if err := a.printf("\nproblems\n"); err != nil {
		return err
	}
	for _, p := range all {
		mark := "-"
		if p.Fatal {
			mark = "!"
		}
		where := ""
		if p.Where != "" {
			where = p.Where + ": "
		}
		if err := a.printf("%s %s%s.\n    To do: %s.\n", mark, where, p.What, p.Fix); err != nil {
			return err
		}
	}
	return nil
}
