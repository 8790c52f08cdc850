package node

import (
	"errors"
	"fmt"
	"net"
	"strings"
)

// advertised returns the HOST:PORT told to other nodes for a listener. A
// wildcard address is replaced by one that others can route to.
func advertised(cfg Config, bound net.Addr) (string, error) {
	_, port, err := net.SplitHostPort(bound.String())
	if err != nil {
		return "", fmt.Errorf("listener address %s: %w", bound, err)
	}
	if cfg.Advertise != "" {
		host, p, err := net.SplitHostPort(cfg.Advertise)
		if err != nil {
			return "", fmt.Errorf("--advertise %q: %w", cfg.Advertise, err)
		}
		if p == "0" {
			p = port
		}
		return net.JoinHostPort(host, p), nil
	}
	if !isWildcard(cfg.Listen) {
		host, _, err := net.SplitHostPort(cfg.Listen)
		if err != nil {
			return "", fmt.Errorf("--listen %q: %w", cfg.Listen, err)
		}
		return net.JoinHostPort(host, port), nil
	}
	ip, err := routableAddress()
	if err != nil {
		return "", err
	}
	return net.JoinHostPort(ip.String(), port), nil
}

// metaAdvertise returns the host that others reach a wildcard --meta-listen at;
// empty where it listens on one address.
func metaAdvertise(cfg Config) (string, error) {
	if cfg.Advertise != "" || !isWildcard(cfg.MetaListen) {
		return cfg.Advertise, nil
	}
	ip, err := routableAddress()
	if err != nil {
		return "", err
	}
	return ip.String(), nil
}

func isWildcard(hp string) bool {
	host, _, err := net.SplitHostPort(hp)
	ip := net.ParseIP(host)
	return err == nil && (host == "" || ip != nil && ip.IsUnspecified())
}

// routableAddress picks this host's address for a wildcard listener: global
// before private-looking bridges, IPv4 before IPv6, never link-local.
func routableAddress() (net.IP, error) {
	ifaces, err := net.Interfaces()
	if err != nil {
		return nil, fmt.Errorf("list network interfaces (give --advertise): %w", err)
	}
	var best net.IP
	score := -1
	for _, ifc := range ifaces {
		if ifc.Flags&net.FlagUp == 0 || ifc.Flags&net.FlagLoopback != 0 {
			continue
		}
		addrs, err := ifc.Addrs()
		if err != nil {
			continue
		}
		for _, a := range addrs {
			ipn, ok := a.(*net.IPNet)
			if !ok || !ipn.IP.IsGlobalUnicast() {
				continue
			}
			if s := addressScore(ifc.Name, ipn.IP); s > score {
				best, score = ipn.IP, s
			}
		}
	}
	if best == nil {
		return nil, errors.New("no routable address on this host; give --advertise HOST:PORT")
	}
	return best, nil
}

func addressScore(ifname string, ip net.IP) int {
	s := 0
	if ip.To4() != nil {
		s++
	}
	for _, bridge := range []string{"docker", "br-", "virbr", "veth", "cni", "flannel"} {
		if strings.HasPrefix(ifname, bridge) {
			return s
		}
	}
	return s + 2
}
