package integration

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// plantTree makes a tree with what tools that keep everything have to keep.
func plantTree(t testing.TB, root string) {
	t.Helper()
	for i, size := range []int64{0, 1, 4095, smallBlock, smallBlock + 1, 3*smallChunk + 17} {
		writeFile(t, filepath.Join(root, "deep", "er", fmt.Sprintf("f%d", i)), size, uint64(i))
	}
	writeFile(t, filepath.Join(root, "name with spaces and ünïcode"), 10, 7)
	writeFile(t, filepath.Join(root, "not utf-8 \xff\n"), 11, 8)
	writeFile(t, filepath.Join(root, ".hidden", "file"), 12, 9)
	for _, name := range []string{"index", "files", "meta", ".x", "a:b", "a*b", "[x]", "trailing ", "tab\t", "-n", strings.Repeat("n", 255)} {
		writeFile(t, filepath.Join(root, "names", name), 1, 10)
	}
	require.NoError(t, os.Mkdir(filepath.Join(root, "empty"), 0o1777))
	require.NoError(t, os.Symlink("deep/er/f3", filepath.Join(root, "relative")))
	require.NoError(t, os.Symlink("../nowhere", filepath.Join(root, "dangling")))
	require.NoError(t, os.Symlink("/absolute/"+strings.Repeat("x", 1000), filepath.Join(root, "long")))
	must(t, "truncate", "-s", "10M", filepath.Join(root, "sparse"))
	must(t, "chmod", "2750", filepath.Join(root, "deep"))
	must(t, "chmod", "4751", filepath.Join(root, "deep", "er", "f1"))
	must(t, "chown", "-h", "12:34", filepath.Join(root, "deep", "er", "f2"), filepath.Join(root, "relative"))
	for i, name := range []string{"deep/er/f0", "deep/er/f4", "relative", "empty", "deep/er", "deep"} {
		stamp := []unix.Timespec{{Sec: 1_000_000_000, Nsec: 1}, {Sec: 1_600_000_000 + int64(i), Nsec: 123_456_789}}
		require.NoError(t, unix.UtimesNanoAt(unix.AT_FDCWD, filepath.Join(root, name), stamp, unix.AT_SYMLINK_NOFOLLOW))
	}
}

// N1 N7 A1 W12
func TestToolsThatKeepEverythingDo(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	tree := filepath.Join(p.src, "tree")
	plantTree(t, tree)
	want := listing(t, "list", tree)
	for name, how := range map[string]string{
		"cp":     `cp -a "$1/." "$2"`,
		"rsync":  `rsync -a@-1 "$1/" "$2"`,
		"tar":    `tar -C "$1" --format=posix -c . | tar -C "$2" -x`,
		"rsyncH": `rsync -aHS@-1 --inplace "$1/" "$2"`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a, b := p.mkdir(t, name)
			must(t, "sh", "-euc", how, "sh", tree, a)
			sameListing(t, "list", want, a)
			sameListing(t, "list", want, b)
			for _, dir := range []string{a, b} { // a second run finds nothing to do, on either node
				require.Empty(t, must(t, "rsync", "-ai@-1", tree+"/", dir), "rsync found a difference in %s", dir)
			}
			require.Empty(t, must(t, "diff", "-r", "--no-dereference", tree, b))
		})
	}
}

func TestRsyncBringsWhatChanged(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	tree := filepath.Join(p.src, "tree")
	plantTree(t, tree)
	a, b := p.mkdir(t, "t")
	must(t, "rsync", "-a@-1", tree+"/", a)
	must(t, "sh", "-euc", `cd "$1"; printf changed >>deep/er/f5; rm deep/er/f3; mkdir new; echo new >new/f`, "sh", tree)
	out := must(t, "rsync", "-ai@-1", "--delete", tree+"/", a)
	require.Contains(t, out, "deep/er/f5")
	require.Contains(t, out, "deep/er/f3")
	require.NotContains(t, out, "deep/er/f4")
	sameListing(t, "list", listing(t, "list", tree), b)
	// The other node overwrites what this one published.
	must(t, "sh", "-euc", `printf more >>"$1/deep/er/f5"`, "sh", tree)
	must(t, "rsync", "-a@-1", tree+"/", b)
	sameListing(t, "list", listing(t, "list", tree), b)
	// At a the time of a folder moves when a change in it is heard of (A2), which may
	// be after it was heard that the time was set.
	sameListing(t, "content", listing(t, "content", tree), a)
}

// N3 N4
func TestMvMovesInOutAndAcross(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	tree := filepath.Join(p.src, "tree")
	plantTree(t, tree)
	want := listing(t, "list", tree)
	a, b := p.mkdir(t, "d")
	must(t, "mv", tree, a+"/tree") // from a disk: copied, then removed there
	sameListing(t, "list", want, b+"/tree")
	must(t, "mkdir", b+"/elsewhere")
	must(t, "mv", b+"/tree", b+"/elsewhere/renamed") // the other node renames
	sameListing(t, "list", want, a+"/elsewhere/renamed")
	soonAbsent(t, a+"/tree") // that is news of another folder
	must(t, "mv", a+"/elsewhere/renamed/deep/er/f5", a+"/f5")
	must(t, "mv", "-f", a+"/f5", a+"/elsewhere/renamed/deep/er/f4") // over another
	must(t, "mv", a+"/elsewhere/renamed/deep/er/f4", a+"/elsewhere/renamed/deep/er/f5")
	sameOnBoth(t, "content", a, b)
	must(t, "mv", b+"/elsewhere/renamed", tree) // and out again
	require.Contains(t, listing(t, "list", tree), "f5'")
	soonAbsent(t, a+"/elsewhere/renamed")
	must(t, "rmdir", a+"/elsewhere")
}

// W5 W6
func TestSedChangesAPublishedFileInPlace(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	a, b := p.mkdir(t, "d")
	must(t, "sh", "-euc", `seq 50000 >"$1/f"; chmod 640 "$1/f"`, "sh", a)
	must(t, "sed", "-i", "s/^777$/lucky/", b+"/f") // a new file, renamed over the old one
	want := must(t, "sh", "-euc", `seq 50000 | sed 's/^777$/lucky/' | sha256sum | cut -c -64`)
	require.Equal(t, strings.TrimSpace(want), digest(t, a+"/f"))
	require.Equal(t, "640\n", must(t, "stat", "-c", "%a", a+"/f"))
	require.Equal(t, "f\n", must(t, "ls", "-A", a))
}

// W2 W3 W4
func TestAFileWrittenByTwoProcessesOfAShellIsPublishedWhole(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	x, y := filepath.Join(p.src, "x"), filepath.Join(p.src, "y")
	writeFile(t, x, 2*smallBlock+3, 1)
	writeFile(t, y, smallBlock-5, 2)
	both := strings.TrimSpace(must(t, "sh", "-euc", `cat "$1" "$2" | sha256sum | cut -c -64`, "sh", x, y))
	for name, script := range map[string]string{
		"subshell": `(cat "$1"; sleep 1; cat "$2") >"$3"`,
		"group":    `{ cat "$1"; sleep 1; cat "$2"; } >"$3"`,
		"exec":     `exec 3>"$3"; cat "$1" >&3; sleep 1; cat "$2" >&3; exec 3>&-`,
		"pipe":     `{ cat "$1"; sleep 1; cat "$2"; } | cat >"$3"`,
		"tee":      `{ cat "$1"; sleep 1; cat "$2"; } | tee "$3" >/dev/null`,
		"dd":       `{ cat "$1"; sleep 1; cat "$2"; } | dd of="$3" bs=10000 status=none`,
		"append":   `cat "$1" >"$3.part"; sleep 1; cat "$2" >>"$3.part"; mv "$3.part" "$3"`,
	} {
		for _, shell := range []string{"sh", "bash"} {
			t.Run(name+" "+shell, func(t *testing.T) {
				t.Parallel()
				a, b := p.mkdir(t, name+shell)
				seen := p.watchAt(t, b+"/f")
				must(t, shell, "-euc", script, shell, x, y, a+"/f")
				require.Equal(t, both, digest(t, b+"/f"))
				got := seen()
				if p.plain() { // a disk shows the half of it
					return
				}
				allowed := []string{"absent", both}
				if name == "exec" && shell == "sh" { // dash duplicates and closes the descriptor itself for each command: a publish
					allowed = append(allowed, digest(t, x))
				}
				require.Subset(t, allowed, got, "the other node saw something in between")
			})
		}
	}
}

// Run and reported, not judged: what they do is not what the file system is for.
func TestGitAndSqliteAreReported(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	git := `export GIT_CONFIG_NOSYSTEM=1 HOME=` + p.src + `; git config --global user.name x; git config --global user.email x@x; `
	for _, tool := range []struct{ name, script string }{
		{"git init, add, commit", git + `git init -q r; cd r; for i in $(seq 5); do seq $i >f$i; done; git add .; git commit -qm one; seq 9 >f3; git commit -qam two; git gc -q`},
		{"git clone, fsck", git + `git init -q o; (cd o; seq 99 >f; git add f; git commit -qm one); git clone -q --no-hardlinks o c; cd c; git fsck --strict; git status --porcelain`},
		{"git clone of a local path", git + `git init -q o; (cd o; seq 99 >f; git add f; git commit -qm one); git clone -q o c`},
		{"sqlite3, journal_mode=delete", sqlite("delete")},
		{"sqlite3, journal_mode=wal", sqlite("wal")},
	} {
		dir, _ := p.mkdir(t, strings.NewReplacer(" ", "", ",", "", "=", "").Replace(tool.name))
		cmd := exec.Command("sh", "-euc", tool.script)
		cmd.Dir = dir
		r := runCmd(t, commandLimit, cmd)
		if r.code == 0 {
			report(t, "%s: works, %.1f s", tool.name, r.took.Seconds())
		} else {
			report(t, "%s: fails (%d): %s", tool.name, r.code, strings.ReplaceAll(r.String(), "\n", "; "))
		}
	}
}

func sqlite(journal string) string {
	return `mode=$(sqlite3 db "pragma journal_mode=` + journal + `"); [ "$mode" = ` + journal + ` ] || { echo "the mode is $mode"; exit 1; }
		sqlite3 db "create table t(a integer primary key, b text); begin; with recursive n(i) as (values(1) union all select i+1 from n where i<1000) insert into t select i, hex(randomblob(50)) from n; commit; update t set b='x' where a%7=0; vacuum"
		[ "$(sqlite3 db 'pragma integrity_check')" = ok ]; [ "$(sqlite3 db 'select count(*) from t')" = 1000 ]`
}
