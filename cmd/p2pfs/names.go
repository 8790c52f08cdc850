package main

import (
	"encoding/base64"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// shown returns a name the way ls prints it: byte for byte into a file or a
// pipe, quoted for a shell on a terminal when it holds more than plain text.
func (a *app) shown(name string) string {
	if !a.terminal {
		return name
	}
	return quoteName(name)
}

// quoteName quotes a name for a shell if that is needed, each control character
// and stray byte as an escape.
func quoteName(name string) string {
	if name != "" && strings.IndexFunc(name, needsQuotes) < 0 && utf8.ValidString(name) {
		return name
	}
	var b strings.Builder
	b.WriteByte('\'')
	plain := true // inside '...', else inside $'...'
	mode := func(want bool) {
		if plain == want {
			return
		}
		plain = want
		if want {
			b.WriteString("''")
		} else {
			b.WriteString("'$'")
		}
	}
	for i := 0; i < len(name); {
		r, n := utf8.DecodeRuneInString(name[i:])
		switch {
		case r == utf8.RuneError && n == 1:
			mode(false)
			fmt.Fprintf(&b, `\%03o`, name[i])
		case r == '\n', r == '\t', r == '\r', r == '\'':
			mode(false)
			b.WriteString(map[rune]string{'\n': `\n`, '\t': `\t`, '\r': `\r`, '\'': `\'`}[r])
		case !unicode.IsPrint(r):
			mode(false)
			for _, c := range []byte(name[i : i+n]) {
				fmt.Fprintf(&b, `\%03o`, c)
			}
		default:
			mode(true)
			b.WriteString(name[i : i+n])
		}
		i += n
	}
	b.WriteByte('\'')
	return b.String()
}

func needsQuotes(r rune) bool {
	return !unicode.IsPrint(r) || strings.ContainsRune(" '\"\\$`&|;<>()*?[]!~#{}", r)
}

// jsonText returns the two fields of a text that may be any bytes: itself, and
// in base64 if it is not UTF-8, which JSON cannot hold.
func jsonText[T string | []byte](t T) (text, inBase64 string) {
	s := string(t)
	if utf8.ValidString(s) {
		return s, ""
	}
	return strings.ToValidUTF8(s, "\uFFFD"), base64.StdEncoding.EncodeToString([]byte(s))
}
