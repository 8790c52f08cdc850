// Package storeurl reads the parts that the URLs of all metadata stores have.
// Its errors hold no password.
package storeurl

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/url"
	"os"
	"strconv"
)

// Access is what a URL may leave out, since others can read it: in the list of
// processes, say. What the URL says wins.
type Access struct {
	User, Password string
	CA, Cert, Key  string // files, for TLS
}

// Complete adds the files to a URL's options. secure says that its scheme asks
// for TLS.
func (a Access) Complete(q url.Values, secure bool) error {
	if a.CA == "" && a.Cert == "" && a.Key == "" {
		return nil
	}
	if on, err := boolOption(q, "tls"); err == nil && !on && !secure {
		return fmt.Errorf("TLS files are given, and the URL asks for no TLS: write etcds:// or rediss://, or add tls=true")
	}
	if a.CA != "" && !q.Has("ca") {
		q.Set("ca", a.CA)
	}
	if !q.Has("cert") && !q.Has("key") && (a.Cert != "" || a.Key != "") {
		q.Set("cert", a.Cert)
		q.Set("key", a.Key)
	}
	return nil
}

// Login returns the user and password: the URL's, if it has a password.
func (a Access) Login(user, password string) (string, string) {
	if password != "" || a.Password == "" {
		return user, password
	}
	return a.User, a.Password
}

// HostPort reads HOST or HOST:PORT, and adds the default port where there is
// none.
func HostPort(h, port string) (string, error) {
	u, err := url.Parse("//" + h)
	if err != nil || u.Hostname() == "" || u.User != nil || u.Path != "" {
		return "", fmt.Errorf("%q is not HOST or HOST:PORT", h)
	}
	if u.Port() != "" {
		port = u.Port()
	}
	if n, err := strconv.Atoi(port); err != nil || n < 1 || n > 65535 {
		return "", fmt.Errorf("%q: port %q is not a number from 1 to 65535", h, port)
	}
	return net.JoinHostPort(u.Hostname(), port), nil
}

// TLS reads the options tls=true, ca=FILE, cert=FILE, key=FILE,
// server_name=NAME and insecure_skip_verify=true, and the files they name. nil:
// neither secure, which the scheme says, nor tls=true asks for it; the other
// options are not looked at then.
func TLS(q url.Values, secure bool) (*tls.Config, error) {
	on, err := boolOption(q, "tls")
	if err != nil {
		return nil, err
	}
	skip, err := boolOption(q, "insecure_skip_verify")
	if err != nil || !secure && !on {
		return nil, err
	}
	c := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: q.Get("server_name"), InsecureSkipVerify: skip}
	if err := loadCerts(c, q.Get("ca"), q.Get("cert"), q.Get("key")); err != nil {
		return nil, err
	}
	return c, nil
}

func boolOption(q url.Values, name string) (bool, error) {
	switch v := q.Get(name); v {
	case "", "false", "0":
		return false, nil
	case "true", "1":
		return true, nil
	default:
		return false, fmt.Errorf("option %s=%q is neither true nor false", name, v)
	}
}

func loadCerts(c *tls.Config, ca, cert, key string) error {
	if ca != "" {
		pem, err := os.ReadFile(ca)
		if err != nil {
			return fmt.Errorf("read certificate authority: %w", err)
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(pem) {
			return fmt.Errorf("no certificate in %s", ca)
		}
	}
	if (cert == "") != (key == "") {
		return fmt.Errorf("cert and key go together")
	}
	if cert != "" {
		pair, err := tls.LoadX509KeyPair(cert, key)
		if err != nil {
			return fmt.Errorf("read client certificate: %w", err)
		}
		c.Certificates = []tls.Certificate{pair}
	}
	return nil
}
