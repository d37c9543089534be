package access

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/penstock-run/penstock/jobs"
)

// These bound the answers to a request. A worker hears a control message by two
// subscriptions, of its claim and of its session, and the server (2.15.2) counts
// the second delivery as if it were an answer.
const (
	Answers      = 2
	AnswerWithin = time.Minute
)

// A User is the public half of a credential.
type User struct {
	Name string
	Role jobs.Role
	Key  string // the public nkey
}

// Config writes the accounts, and the users that are given, as a part of the
// configuration of a NATS server. JetStream must be on there.
func (l Layout) Config(users []User) (string, error) {
	var b strings.Builder
	b.WriteString("accounts {\n")
	for _, role := range []jobs.Role{jobs.RoleOperator, jobs.RoleViewer, jobs.RoleSubmitter, jobs.RoleWorker} {
		fmt.Fprintf(&b, "  %s {\n", Account(role))
		var err error
		if role.All() {
			err = l.writeExports(&b)
		} else {
			err = l.writeImports(&b, role)
		}
		if err == nil {
			err = l.writeUsers(&b, role, users)
		}
		if err != nil {
			return "", err
		}
		b.WriteString("  }\n")
	}
	b.WriteString("}\n")
	return b.String(), nil
}

// writeExports offers each thing to the accounts of the roles that have it, and
// to no other account.
func (l Layout) writeExports(b *strings.Builder) error {
	type export struct {
		share Share
		to    []string
	}
	offered := map[string]*export{}
	for _, role := range jobs.Roles {
		shares, err := l.Shares(role)
		if err != nil {
			return err
		}
		for _, s := range shares {
			if s.Served {
				continue
			}
			if offered[s.Subject] == nil {
				offered[s.Subject] = &export{share: s}
			}
			offered[s.Subject].to = append(offered[s.Subject].to, Account(role))
		}
	}
	all := make([]*export, 0, len(offered))
	for _, e := range offered {
		all = append(all, e)
	}
	slices.SortFunc(all, func(a, b *export) int { return cmp.Compare(a.share.Subject, b.share.Subject) })
	b.WriteString("    jetstream: enabled\n    exports: [\n")
	for _, e := range all {
		kind, many := "service", ""
		if e.share.Published {
			kind = "stream"
		}
		if e.share.Many {
			many = ", response_type: stream"
		}
		fmt.Fprintf(b, "      {%s: %q%s, accounts: [%s]}\n", kind, e.share.Subject, many, strings.Join(e.to, ", "))
	}
	b.WriteString("    ]\n")
	return l.writeServed(b)
}

// writeServed has the pool's account ask what roles answer.
func (l Layout) writeServed(b *strings.Builder) error {
	b.WriteString("    imports: [\n")
	for _, role := range jobs.Roles {
		shares, err := l.Shares(role)
		if err != nil {
			return err
		}
		for _, s := range shares {
			if s.Served {
				fmt.Fprintf(b, "      {service: {account: %s, subject: %q}}\n", Account(role), s.Subject)
			}
		}
	}
	b.WriteString("    ]\n")
	return nil
}

func (l Layout) writeImports(b *strings.Builder, role jobs.Role) error {
	shares, err := l.Shares(role)
	if err != nil {
		return err
	}
	b.WriteString("    exports: [\n")
	for _, s := range shares {
		if s.Served {
			fmt.Fprintf(b, "      {service: %q, accounts: [%s]}\n", s.Subject, Pool)
		}
	}
	b.WriteString("    ]\n    imports: [\n")
	for _, s := range shares {
		if s.Served {
			continue
		}
		kind, to := "service", ""
		if s.Published {
			kind = "stream"
		}
		if s.Local != "" {
			to = fmt.Sprintf(", to: %q", s.Local)
		}
		fmt.Fprintf(b, "      {%s: {account: %s, subject: %q}%s}\n", kind, Pool, s.Subject, to)
	}
	b.WriteString("    ]\n")
	return nil
}

func (l Layout) writeUsers(b *strings.Builder, role jobs.Role, users []User) error {
	b.WriteString("    users: [\n")
	for _, u := range users {
		if u.Role != role {
			continue
		}
		fmt.Fprintf(b, "      # %s\n", u.Name)
		line, err := l.UserConfig(u)
		if err != nil {
			return err
		}
		fmt.Fprintf(b, "      %s\n", line)
	}
	b.WriteString("    ]\n")
	return nil
}

// UserConfig writes the entry of one user, for the list of its account.
func (l Layout) UserConfig(u User) (string, error) {
	rights, err := l.Rights(u.Role, u.Key)
	if err != nil {
		return "", err
	}
	if u.Role.All() {
		return fmt.Sprintf("{nkey: %s}", u.Key), nil
	}
	answers := ""
	if rights.Answers {
		answers = fmt.Sprintf(", allow_responses: {max: %d, expires: %q}", Answers, AnswerWithin)
	}
	return fmt.Sprintf("{nkey: %s, permissions: {publish: {allow: [%s]}, subscribe: {allow: [%s]}%s}}",
		u.Key, quoted(rights.Publish), quoted(rights.Subscribe), answers), nil
}

func quoted(list []string) string {
	all := make([]string, len(list))
	for i, s := range list {
		all[i] = fmt.Sprintf("%q", s)
	}
	return strings.Join(all, ", ")
}

// covers reports whether a pattern with wildcards matches a subject.
func covers(pattern, to string) bool {
	p, s := strings.Split(pattern, "."), strings.Split(to, ".")
	for i, token := range p {
		switch {
		case token == ">":
			return len(s) > i
		case i >= len(s) || token != "*" && token != s[i]:
			return false
		}
	}
	return len(p) == len(s)
}
