package access_test

import (
	"testing"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/access"
)

// A role that only tokens have gets no rights on the bus: neither few, nor those of the
// pool's own account.
func TestARoleOfTokensHasNoAccount(t *testing.T) {
	for _, role := range []jobs.Role{jobs.RoleAutoscale, "root"} {
		if shares, err := (access.Layout{}).Shares(role); err == nil {
			t.Errorf("the account of %s sees %v", role, shares)
		}
		if line, err := (access.Layout{}).UserConfig(access.User{Name: "x", Role: role, Key: "U"}); err == nil {
			t.Errorf("a user of role %s is configured as %s", role, line)
		}
		if _, err := jobs.ParseRole(string(role)); err == nil {
			t.Errorf("%s is taken for a role of the bus", role)
		}
	}
	for _, role := range jobs.Roles {
		if _, err := (access.Layout{}).Shares(role); err != nil {
			t.Errorf("%s: %v", role, err)
		}
	}
}
