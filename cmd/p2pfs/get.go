package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc/codes"

	"github.com/p2pfs/p2pfs/node/nodepb"
)

func (a *app) getCommand() *cobra.Command {
	var output string
	c := &cobra.Command{
		Use:   "get PATH [-o FILE]",
		Short: "Bring all of a file to this machine",
		Long: `Bring all of a file, or of every file under a directory, into this machine's cache,
and wait until it is here. What is larger than the cache can hold is refused at
once. With -o the file is then copied to FILE, which appears whole or not at all;
'-' is standard output. A file that the cache cannot hold is copied without being
kept.

` + exitCodesHelp,
		Example: `  p2pfs get /mnt/models/llama
  p2pfs get /mnt/models/llama/config.json -o config.json`,
		Args: argCount(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if cmd.Flags().Changed("output") && output == "" {
				return usagef("get: empty name after -o")
			}
			return a.get(cmd.Context(), args[0], output)
		},
	}
	c.Flags().StringVarP(&output, "output", "o", "", "copy the file to `FILE`")
	return c
}

// gotten is the JSON that get prints.
type gotten struct {
	Path         string  `json:"path"`
	PathBase64   string  `json:"path_base64,omitempty"`
	Files        int64   `json:"files"`
	Bytes        int64   `json:"bytes"`
	Output       string  `json:"output,omitempty"`
	OutputBase64 string  `json:"output_base64,omitempty"`
	Seconds      float64 `json:"seconds"`
}

func (a *app) get(ctx context.Context, name, output string) error {
	began := time.Now()
	return a.with(ctx, name, func(ctx context.Context, s *session) error {
		if output != "" {
			// Before gigabytes travel for a mistake.
			if fi, err := os.Stat(s.Path); err == nil && !fi.Mode().IsRegular() {
				return usagef("get: %s is not a file; -o copies a single file", quoteName(name))
			}
		}
		last, err := a.fetch(ctx, s, name)
		var refused remoteError
		if output != "" && errors.As(err, &refused) && refused.code == codes.ResourceExhausted {
			// It is read past the cache, as it is copied.
			last, err = &nodepb.Progress{Files: 1}, nil
			if fi, e := os.Stat(s.Path); e == nil {
				last.Bytes = fi.Size()
			}
		}
		if err != nil {
			return err
		}
		if output != "" {
			if err := a.copyOut(ctx, s.Path, output); err != nil {
				return fmt.Errorf("copy %s: %w", quoteName(name), err)
			}
		}
		took := time.Since(began)
		switch {
		case output == "-":
			return nil
		case a.json:
			r := gotten{Files: last.GetFiles(), Bytes: last.GetBytes(), Seconds: took.Seconds()}
			r.Path, r.PathBase64 = jsonText(s.Path)
			r.Output, r.OutputBase64 = jsonText(output)
			return a.printJSON(r)
		}
		where := "is here"
		if output != "" {
			where = "is copied"
		}
		return a.printf("%s %s: %s, %s, in %.1f s\n", a.shown(s.Path), where,
			plural(last.GetFiles(), "file"), formatSize(last.GetBytes()), took.Seconds())
	})
}

// fetch brings the bytes into the node's cache.
func (a *app) fetch(ctx context.Context, s *session, name string) (*nodepb.Progress, error) {
	bar := a.newProgress("fetching")
	defer bar.end()
	what := "get " + quoteName(name)
	stream, err := s.ctl.Get(ctx, &nodepb.PathRequest{Path: []byte(s.Inside), Recursive: true})
	if err != nil {
		return nil, asked(s.Info, what, err)
	}
	return follow(s.Info, what, stream, func(p *nodepb.Progress) { bar.bytes(p.GetBytes(), p.GetBytesTotal()) })
}

// copyBuffer is how much is read of a mounted file at once: a block.
const copyBuffer = 4 << 20

// copyOut copies a mounted file to output.
func (a *app) copyOut(ctx context.Context, src, output string) error {
	in, err := os.Open(src)
	if err != nil {
		return err
	}
	defer in.Close()
	fi, err := in.Stat()
	if err != nil {
		return err
	}
	if !fi.Mode().IsRegular() {
		return errors.New("only a single file can be copied with -o")
	}
	if output == "-" {
		return a.copyBytes(ctx, a.out, in, fi.Size())
	}
	to, err := os.Stat(output)
	switch {
	case err == nil && to.IsDir():
		output = filepath.Join(output, path.Base(src))
	case err == nil && !to.Mode().IsRegular():
		return a.copyInto(ctx, output, in, fi.Size())
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return err
	}
	return a.copyFile(ctx, output, in, fi)
}

// copyFile makes output appear whole or not at all.
func (a *app) copyFile(ctx context.Context, output string, in *os.File, fi os.FileInfo) error {
	return wholeFile(output, "get", func(tmp *os.File) error {
		if err := a.copyBytes(ctx, tmp, in, fi.Size()); err != nil {
			return err
		}
		return tmp.Chmod(fi.Mode().Perm())
	})
}

// wholeFile has a file filled under another name beside it, and then renamed: it
// appears whole or not at all. What names the one who does it.
func wholeFile(name, what string, fill func(*os.File) error) error {
	tmp, err := os.CreateTemp(filepath.Dir(name), ".p2pfs-"+what+"-*")
	if err != nil {
		return err
	}
	err = errors.Join(fill(tmp), tmp.Close())
	if err == nil {
		err = os.Rename(tmp.Name(), name)
	}
	if err != nil {
		return errors.Join(err, os.Remove(tmp.Name()))
	}
	return nil
}

// copyInto writes to what is not a file: a device, a pipe.
func (a *app) copyInto(ctx context.Context, output string, in io.Reader, size int64) error {
	out, err := os.OpenFile(output, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	return errors.Join(a.copyBytes(ctx, out, in, size), out.Close())
}

// copyBytes copies all of in, with a progress bar, until ctx ends.
func (a *app) copyBytes(ctx context.Context, out io.Writer, in io.Reader, size int64) error {
	bar := a.newProgress("copying")
	defer bar.end()
	buf := make([]byte, copyBuffer)
	var done int64
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		n, err := in.Read(buf)
		if n > 0 {
			if _, err := out.Write(buf[:n]); err != nil {
				return err
			}
			done += int64(n)
			bar.bytes(done, size)
		}
		switch {
		case errors.Is(err, io.EOF) && done == size:
			return nil
		case errors.Is(err, io.EOF):
			return fmt.Errorf("%d of %d bytes: %w", done, size, io.ErrUnexpectedEOF)
		case err != nil:
			return err
		}
	}
}
