package main

import (
	"encoding/base64"
	"os/exec"
	"strings"
	"testing"
	"unicode"

	"github.com/stretchr/testify/require"
)

func TestQuoteName(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"model-00001.safetensors": "model-00001.safetensors",
		"größe":                   "größe",
		"a/b":                     "a/b",
		"a b":                     "'a b'",
		"":                        "''",
		"a\nb":                    `'a'$'\n''b'`,
		"\x1b[31m":                `''$'\033''[31m'`,
		"\xff":                    `''$'\377'`,
		"it's":                    `'it'$'\'''s'`,
		"%#":                      "'%#'",
		"a\u200bb":                `'a'$'\342\200\213''b'`,
	} {
		require.Equal(t, want, quoteName(name), "%q", name)
	}
}

// What is shown is what a shell reads back as the name, and harmless to see.
func FuzzQuoteName(f *testing.F) {
	for _, s := range []string{"a\nb", "\xff'\\", "$(x)", "\u202e", "-n"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		q := quoteName(s)
		for _, r := range q {
			require.True(t, unicode.IsPrint(r), "%q", q)
		}
		if strings.ContainsRune(s, 0) {
			return
		}
		out, err := exec.Command("bash", "-c", "printf %s "+q).Output()
		require.NoError(t, err, q)
		if !strings.HasPrefix(s, "-") {
			require.Equal(t, s, string(out), q)
		}
	})
}

func TestJSONText(t *testing.T) {
	t.Parallel()
	text, b64 := jsonText("größe")
	require.Equal(t, "größe", text)
	require.Empty(t, b64)
	text, b64 = jsonText([]byte("a\xffb"))
	require.Equal(t, "a\uFFFDb", text)
	raw, err := base64.StdEncoding.DecodeString(b64)
	require.NoError(t, err)
	require.Equal(t, "a\xffb", string(raw))
}
