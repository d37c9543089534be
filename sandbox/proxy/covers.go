package proxy

import "strings"

// Covers reports whether everything that entry names is allowed by the rules
// already. An entry that [ParseRules] refuses is covered by none.
func (r Rules) Covers(entry string) bool {
	asked, err := parseRule(entry)
	if err != nil {
		return false
	}
	if asked.port == 0 && !asked.any {
		http, https := asked, asked
		http.port, https.port = 80, 443
		return r.covers(http) && r.covers(https)
	}
	return r.covers(asked)
}

// covers is Covers for one port, or for all of them.
func (r Rules) covers(asked rule) bool {
	for _, x := range r.list {
		ports := x.any || (!asked.any && x.allowsPort(asked.port))
		if ports && x.contains(asked) {
			return true
		}
	}
	return false
}

// contains compares the hosts alone.
func (x rule) contains(asked rule) bool {
	switch {
	case asked.prefix.IsValid():
		return x.prefix.IsValid() && x.prefix.Bits() <= asked.prefix.Bits() && x.prefix.Contains(asked.prefix.Addr())
	case asked.suffix != "":
		return x.suffix != "" && strings.HasSuffix(asked.suffix, x.suffix)
	}
	return (x.host != "" && x.host == asked.host) || (x.suffix != "" && strings.HasSuffix(asked.host, x.suffix))
}
