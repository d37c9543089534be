package jobs

import (
	"errors"
	"fmt"
	"slices"
)

// A Role says what a client of the bus may do.
type Role string

// The roles. An operator may do everything; so may who connects without a role
// to a broker that knows none.
const (
	RoleSubmitter Role = "submitter" // hands jobs in, asks after them, cancels them
	RoleWorker    Role = "worker"    // claims jobs and writes what becomes of them
	RoleViewer    Role = "viewer"    // reads jobs, sessions and results
	RoleOperator  Role = "operator"
)

// RoleAutoscale is for tokens of HTTP alone: it reads what an autoscaler scales
// workers by. No account of the bus has it.
const RoleAutoscale Role = "autoscale"

// TokenRoles lists the roles that a token may have, the least first. A worker needs
// the bus, so its role is not among them.
var TokenRoles = []Role{RoleAutoscale, RoleViewer, RoleSubmitter, RoleOperator}

// Roles lists the roles of the bus, the least first.
var Roles = []Role{RoleViewer, RoleSubmitter, RoleWorker, RoleOperator}

// ParseRole reads a role's name.
func ParseRole(s string) (Role, error) {
	if !slices.Contains(Roles, Role(s)) {
		return "", fmt.Errorf("%q is not a role: use viewer, submitter, worker or operator", s)
	}
	return Role(s), nil
}

// All reports whether the role may do everything.
func (r Role) All() bool { return r == "" || r == RoleOperator }

// ErrForbidden: the broker does not let this client do that.
var ErrForbidden = errors.New("not allowed")

// A ForbiddenError says what the broker refused to a client. Role is empty
// where the client's credential does not tell it.
type ForbiddenError struct {
	Role    Role
	Subject string
}

func (e *ForbiddenError) Error() string {
	who := "this credential"
	if e.Role != "" {
		who = "role " + string(e.Role)
	}
	return fmt.Sprintf("not allowed: %s may not publish to %s", who, e.Subject)
}

// Is makes every ForbiddenError an [ErrForbidden].
func (e *ForbiddenError) Is(target error) bool { return target == ErrForbidden }
