package etcd

import (
	"crypto/tls"
	"fmt"
	"net/url"
	"strings"

	"github.com/p2pfs/p2pfs/meta"
	"github.com/p2pfs/p2pfs/meta/storeurl"
)

// Defaults of a URL.
const (
	defaultPort   = "2379"
	defaultPrefix = "p2p"
)

// target is what an etcd:// URL says.
type target struct {
	endpoints []string // scheme://host:port
	hosts     string   // host:port,... for messages: no password in it
	prefix    string
	user      string
	password  string
	tls       *tls.Config // nil: none
}

// parseURL reads etcd://[user:password@]host[:port],.../prefix?options, and
// etcds:// for TLS. Options: tls=true, ca=FILE, cert=FILE, key=FILE,
// server_name=NAME, insecure_skip_verify=true. Its errors hold no password.
func parseURL(raw string, a storeurl.Access) (target, error) {
	scheme, rest, ok := strings.Cut(raw, "://")
	if !ok || (scheme != "etcd" && scheme != "etcds") {
		return target{}, badURL(raw, "want etcd://HOST:PORT,HOST:PORT/PREFIX")
	}
	rest, query, _ := strings.Cut(rest, "?")
	hosts, prefix, _ := strings.Cut(rest, "/")
	t := target{prefix: strings.Trim(prefix, "/")}
	at := strings.LastIndexByte(hosts, '@')
	if at < 0 && strings.Contains(prefix, "@") {
		return target{}, badURL(raw, "a slash in USER:PASSWORD@ must be percent-encoded")
	}
	if at >= 0 {
		if err := t.setUser(hosts[:at]); err != nil {
			return target{}, badURL(raw, err.Error())
		}
		hosts = hosts[at+1:]
	}
	if t.prefix == "" {
		t.prefix = defaultPrefix
	}
	if strings.IndexByte(t.prefix, 0) >= 0 {
		return target{}, badURL(raw, "the prefix holds a NUL")
	}
	t.user, t.password = a.Login(t.user, t.password)
	if t.password != "" && t.user == "" {
		return target{}, badURL(raw, "etcd wants a user with the password")
	}
	if err := t.setTLS(scheme, query, a); err != nil {
		return target{}, badURL(raw, err.Error())
	}
	if err := t.setHosts(hosts); err != nil {
		return target{}, badURL(raw, err.Error())
	}
	return t, nil
}

func badURL(raw, why string) error {
	return fmt.Errorf("metadata URL %q: %s", meta.RedactURL(raw), why)
}

func (t *target) setUser(info string) error {
	user, password, ok := strings.Cut(info, ":")
	u, err1 := url.PathUnescape(user)
	p, err2 := url.PathUnescape(password)
	if !ok || u == "" || p == "" || err1 != nil || err2 != nil {
		return fmt.Errorf("want USER:PASSWORD@ before the hosts, special characters percent-encoded")
	}
	t.user, t.password = u, p
	return nil
}

func (t *target) setHosts(hosts string) error {
	scheme := "http"
	if t.tls != nil {
		scheme = "https"
	}
	var names []string
	for _, h := range strings.Split(hosts, ",") {
		hp, err := storeurl.HostPort(strings.TrimSpace(h), defaultPort)
		if err != nil {
			return err
		}
		names = append(names, hp)
		t.endpoints = append(t.endpoints, scheme+"://"+hp)
	}
	t.hosts = strings.Join(names, ",")
	return nil
}

func (t *target) setTLS(scheme, query string, a storeurl.Access) error {
	q, err := url.ParseQuery(query)
	if err != nil {
		return fmt.Errorf("unreadable options: %w", err)
	}
	for k, v := range q {
		switch k {
		case "tls", "ca", "cert", "key", "server_name", "insecure_skip_verify":
		default:
			return fmt.Errorf("unknown option %q", k)
		}
		if len(v) != 1 {
			return fmt.Errorf("option %q is given %d times", k, len(v))
		}
	}
	if err := a.Complete(q, scheme == "etcds"); err != nil {
		return err
	}
	t.tls, err = storeurl.TLS(q, scheme == "etcds")
	if err == nil && t.tls == nil && len(q) > 0 && !q.Has("tls") {
		return fmt.Errorf("TLS options without tls=true")
	}
	return err
}
