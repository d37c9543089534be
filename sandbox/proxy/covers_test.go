package proxy

import "testing"

func TestCovers(t *testing.T) {
	rules, err := ParseRules("registry.example", "*.cdn.example:443", "db.example:5432", "any.example:*", "10.0.0.0/8:*", "192.0.2.7:80", "split.example:80", "split.example:443")
	if err != nil {
		t.Fatal(err)
	}
	for entry, want := range map[string]bool{
		"registry.example": true, "REGISTRY.example.": true, "registry.example:443": true, "registry.example:22": false, "registry.example:*": false,
		"x.registry.example": false, "*.registry.example": false, "registry.example.evil.example": false,
		"a.cdn.example:443": true, "a.b.cdn.example:443": true, "*.b.cdn.example:443": true, "*.cdn.example:443": true,
		"cdn.example:443": false, "a.cdn.example": false, "evilcdn.example:443": false, "*.example:443": false,
		"db.example:5432": true, "db.example": false, "any.example:*": true, "any.example": true, "any.example:22": true,
		"10.1.2.3:22": true, "10.1.0.0/16:*": true, "10.0.0.0/7:*": false, "192.0.2.7": false, "192.0.2.7:80": true, "[::1]:80": false,
		"split.example": true, "split.example:*": false, "": false, "http://registry.example": false, "0x0a000001:80": false,
	} {
		if got := rules.Covers(entry); got != want {
			t.Errorf("%q: got %v, want %v", entry, got, want)
		}
	}
	if (Rules{}).Covers("registry.example") {
		t.Error("no rules cover something")
	}
}
