package redis

import (
	"crypto/tls"
	"fmt"
	"net/url"
	"strconv"
	"strings"

	"github.com/p2pfs/p2pfs/meta"
	"github.com/p2pfs/p2pfs/meta/storeurl"
)

// The forms of a store.
const (
	standalone = "redis"
	sentinel   = "redis+sentinel"
	cluster    = "redis+cluster"
)

const defaultPrefix = "p2p"

// target is what a URL says.
type target struct {
	form      string
	endpoints []string // host:port
	hosts     string   // host:port,... for messages: no password in it
	service   string   // the name that Sentinels know the master by
	db        int
	prefix    string
	user      string
	password  string
	// The Sentinels' own, which are not the master's.
	sentinelUser, sentinelPassword string
	tls                            *tls.Config // nil: none
}

// parseURL reads redis://[user:password@]host[:port][/db[/prefix]]?options,
// rediss:// for TLS, redis+sentinel://host,host/service[/db[/prefix]] and
// redis+cluster://host,host[/prefix]. Options: tls=true, ca=FILE, cert=FILE,
// key=FILE, server_name=NAME, insecure_skip_verify=true, sentinel_user=NAME,
// sentinel_password=PASSWORD. Its errors hold no password.
func parseURL(raw string, a storeurl.Access) (target, error) {
	bad := func(why string) (target, error) {
		return target{}, fmt.Errorf("metadata URL %q: %s", meta.RedactURL(raw), why)
	}
	scheme, rest, ok := strings.Cut(raw, "://")
	t := target{form: scheme}
	switch scheme {
	case standalone, sentinel, cluster:
	case "rediss":
		t.form = standalone
	default:
		ok = false
	}
	if !ok {
		return bad("want redis://HOST:PORT/DB/PREFIX")
	}
	rest, query, _ := strings.Cut(rest, "?")
	hosts, path, _ := strings.Cut(rest, "/")
	at := strings.LastIndexByte(hosts, '@')
	if at < 0 && strings.Contains(path, "@") {
		return bad("a slash in USER:PASSWORD@ must be percent-encoded")
	}
	if at >= 0 {
		if err := t.setUser(hosts[:at]); err != nil {
			return bad(err.Error())
		}
		hosts = hosts[at+1:]
	}
	t.user, t.password = a.Login(t.user, t.password)
	for _, set := range []func() error{
		func() error { return t.setPath(path) },
		func() error { return t.setOptions(scheme, query, a) },
		func() error { return t.setHosts(hosts) },
	} {
		if err := set(); err != nil {
			return bad(err.Error())
		}
	}
	return t, nil
}

// setUser reads USER:PASSWORD or :PASSWORD.
func (t *target) setUser(info string) error {
	user, password, ok := strings.Cut(info, ":")
	u, err1 := url.PathUnescape(user)
	p, err2 := url.PathUnescape(password)
	if !ok || p == "" || err1 != nil || err2 != nil {
		return fmt.Errorf("want USER:PASSWORD@ or :PASSWORD@ before the hosts, special characters percent-encoded")
	}
	t.user, t.password = u, p
	return nil
}

// setPath reads what follows the hosts.
func (t *target) setPath(path string) error {
	path = strings.Trim(path, "/")
	if t.form == sentinel {
		t.service, path, _ = strings.Cut(path, "/")
		if t.service == "" {
			return fmt.Errorf("want redis+sentinel://HOST:PORT,HOST:PORT/SERVICE/DB, SERVICE as the Sentinels name the master")
		}
	}
	db, prefix, _ := strings.Cut(path, "/")
	n, err := strconv.Atoi(db)
	switch {
	case db == "":
	case err == nil && n >= 0:
		t.db = n
	case t.form == cluster: // it has no databases
		prefix = path
	default:
		return fmt.Errorf("the database %q is not a number; a prefix follows it, as in redis://HOST:PORT/0/PREFIX", db)
	}
	if t.form == cluster && t.db != 0 {
		return fmt.Errorf("a Cluster has no database %d", t.db)
	}
	if t.prefix = strings.Trim(prefix, "/"); t.prefix == "" {
		t.prefix = defaultPrefix
	}
	if strings.ContainsAny(t.prefix, "{}\x00") {
		return fmt.Errorf("the prefix holds a brace or a NUL")
	}
	return nil
}

func (t *target) setHosts(hosts string) error {
	port := "6379"
	if t.form == sentinel {
		port = "26379"
	}
	for _, h := range strings.Split(hosts, ",") {
		hp, err := storeurl.HostPort(strings.TrimSpace(h), port)
		if err != nil {
			return err
		}
		t.endpoints = append(t.endpoints, hp)
	}
	if t.form == standalone && len(t.endpoints) > 1 {
		return fmt.Errorf("redis:// takes one host; for several write redis+sentinel:// or redis+cluster://")
	}
	t.hosts = strings.Join(t.endpoints, ",")
	return nil
}

func (t *target) setOptions(scheme, query string, a storeurl.Access) error {
	q, err := url.ParseQuery(query)
	if err != nil {
		return fmt.Errorf("unreadable options")
	}
	files := false
	for k, v := range q {
		switch k {
		case "tls":
		case "ca", "cert", "key", "server_name", "insecure_skip_verify":
			files = true
		case "sentinel_user", "sentinel_password":
			if t.form != sentinel {
				return fmt.Errorf("option %q without Sentinels", k)
			}
		default:
			return fmt.Errorf("unknown option %q", k)
		}
		if len(v) != 1 {
			return fmt.Errorf("option %q is given %d times", k, len(v))
		}
	}
	t.sentinelUser, t.sentinelPassword = q.Get("sentinel_user"), q.Get("sentinel_password")
	if err := a.Complete(q, scheme == "rediss"); err != nil {
		return err
	}
	t.tls, err = storeurl.TLS(q, scheme == "rediss")
	if err == nil && t.tls == nil && files {
		return fmt.Errorf("TLS options without tls=true")
	}
	return err
}
