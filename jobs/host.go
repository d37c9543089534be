package jobs

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"
)

// checkHost accepts what the proxy of a jail reads as a rule, except for
// names in other letters: those are written as they go over the wire.
func checkHost(entry string) error {
	host, port, hasPort := entry, "", false
	if strings.HasPrefix(entry, "[") || strings.Count(entry, ":") == 1 {
		if i := strings.LastIndexByte(entry, ':'); i > strings.LastIndexByte(entry, ']') {
			host, port, hasPort = entry[:i], entry[i+1:], true
		}
	}
	if n, err := strconv.ParseUint(port, 10, 16); hasPort && port != "*" && (err != nil || n == 0) {
		return notHost(entry)
	}
	address := host
	if inner, ok := strings.CutPrefix(host, "["); ok && strings.HasSuffix(inner, "]") {
		address = strings.TrimSuffix(inner, "]")
	}
	if _, err := netip.ParsePrefix(address); err == nil {
		return nil
	}
	if a, err := netip.ParseAddr(address); err == nil && a.Zone() == "" {
		return nil
	}
	name := strings.TrimSuffix(strings.ToLower(host), ".")
	last := name[strings.LastIndexByte(name, '.')+1:]
	// The forms of an address that only some programs take for one.
	number := strings.HasPrefix(last, "0x") || strings.Trim(last, "0123456789") == ""
	if number || len(name) > 253 || !hostName().MatchString(name) {
		return notHost(entry)
	}
	return nil
}

func notHost(entry string) error {
	return fmt.Errorf("%q is not a host: write a name, *.name, an address or a network, and perhaps :port (1 to 65535) or :*, without a scheme or path", entry)
}
