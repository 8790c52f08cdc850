package meta

import (
	"encoding/binary"
	"fmt"
	"iter"
	"strings"
)

// XAttrNameMax is the longest name of an extended attribute, in bytes.
const XAttrNameMax = 255

// XAttrsMax bounds the extended attributes of one entry, in bytes as packed:
// listings carry them.
const XAttrsMax = 16 << 10

// XAttrs are the extended attributes of an entry, packed: each name and each
// value behind its length (one byte; two, big-endian), by ascending name. The
// zero value holds none. What holds the same is the same string.
type XAttrs string

// XAttrChange sets or removes one extended attribute.
type XAttrChange struct {
	Name   string
	Value  string
	Remove bool // ErrNoXAttr if there is none
	// Create: it must be new (ErrExist). Replace: it must be there
	// (ErrNoXAttr).
	Create, Replace bool
}

// All yields the attributes by ascending name.
func (x XAttrs) All() iter.Seq2[string, string] {
	return func(yield func(name, value string) bool) {
		for len(x) > 0 {
			name, value, rest, ok := x.cut()
			if !ok || !yield(name, value) {
				return
			}
			x = rest
		}
	}
}

// Get returns the value of an attribute; ok is false if there is none.
func (x XAttrs) Get(name string) (value string, ok bool) {
	for n, v := range x.All() {
		if n == name {
			return v, true
		}
	}
	return "", false
}

// Apply returns the attributes with the change made. ErrNoXAttr, ErrExist,
// ErrXAttrSpace; ErrName for a name that no attribute can have.
func (x XAttrs) Apply(c XAttrChange) (XAttrs, error) {
	if c.Name == "" || len(c.Name) > XAttrNameMax || strings.IndexByte(c.Name, 0) >= 0 {
		return x, fmt.Errorf("extended attribute %.16q: %w", c.Name, ErrName)
	}
	_, there := x.Get(c.Name)
	switch {
	case !there && (c.Remove || c.Replace):
		return x, fmt.Errorf("extended attribute %q: %w", c.Name, ErrNoXAttr)
	case there && c.Create:
		return x, fmt.Errorf("extended attribute %q: %w", c.Name, ErrExist)
	case !c.Remove && len(c.Name)+len(c.Value)+xattrHeader > XAttrsMax:
		return x, fmt.Errorf("extended attribute %q of %d bytes: %w", c.Name, len(c.Value), ErrXAttrSpace)
	}
	b := make([]byte, 0, len(x)+len(c.Name)+len(c.Value)+xattrHeader)
	put := !c.Remove
	for name, value := range x.All() {
		if put && c.Name < name {
			b, put = packXAttr(b, c.Name, c.Value), false
		}
		if name != c.Name {
			b = packXAttr(b, name, value)
		}
	}
	if put {
		b = packXAttr(b, c.Name, c.Value)
	}
	if len(b) > XAttrsMax {
		return x, fmt.Errorf("extended attributes of %d bytes: %w", len(b), ErrXAttrSpace)
	}
	return XAttrs(b), nil
}

// xattrHeader is what the lengths of one attribute take.
const xattrHeader = 3

func packXAttr(b []byte, name, value string) []byte {
	b = append(b, byte(len(name)))
	b = append(b, name...)
	b = binary.BigEndian.AppendUint16(b, uint16(len(value)))
	return append(b, value...)
}

// cut takes the first attribute off; ok is false if it is not whole.
func (x XAttrs) cut() (name, value string, rest XAttrs, ok bool) {
	s := string(x)
	if s == "" {
		return "", "", "", false
	}
	n := int(s[0])
	if len(s) < xattrHeader+n {
		return "", "", "", false
	}
	name, s = s[1:1+n], s[1+n:]
	n = int(s[0])<<8 | int(s[1])
	if s = s[2:]; len(s) < n {
		return "", "", "", false
	}
	return name, s[:n], XAttrs(s[n:]), true
}

// Check reports why x is not what Apply makes.
func (x XAttrs) Check() error {
	if len(x) > XAttrsMax {
		return fmt.Errorf("extended attributes of %d bytes, the most is %d", len(x), XAttrsMax)
	}
	for last := ""; len(x) > 0; {
		name, _, rest, ok := x.cut()
		switch {
		case !ok:
			return fmt.Errorf("extended attributes are cut short after %q", last)
		case name <= last: // the empty one, too
			return fmt.Errorf("extended attribute %q after %q", name, last)
		case strings.IndexByte(name, 0) >= 0:
			return fmt.Errorf("extended attribute %q holds a NUL", name)
		}
		x, last = rest, name
	}
	return nil
}
