package main

import (
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

// table lines cells up in columns. Its cells may hold any bytes: a name may
// have some that text/tabwriter takes for its own.
type table struct{ rows [][]string }

func (t *table) row(cells ...string) { t.rows = append(t.rows, cells) }

// pair adds a row of two cells, the second formatted.
func (t *table) pair(key, format string, args ...any) { t.row(key, fmt.Sprintf(format, args...)) }

// print writes the table with two spaces between columns. A row's last cell is
// as long as it is.
func (t *table) print(w io.Writer) error {
	var widths []int
	for _, r := range t.rows {
		for i, cell := range r[:len(r)-1] {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	var b strings.Builder
	for _, r := range t.rows {
		last := len(r) - 1
		for i, cell := range r[:last] {
			b.WriteString(cell)
			b.WriteString(strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell)+2))
		}
		b.WriteString(r[last])
		b.WriteByte('\n')
	}
	_, err := io.WriteString(w, b.String())
	return err
}
