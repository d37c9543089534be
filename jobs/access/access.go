// Package access defines the rights of each role on the bus: which account a role
// has, what that account imports, and what its users may publish and hear.
//
//	account of a role ──import──▶ PENSTOCK: streams, dispatcher, operators
//
// A role is an account of its own. Within one account a permission is not
// enough: the broker and every service answer to the reply subject of a
// request, whatever that is, with rights of their own, and so a client that may
// ask anything could have anything written. An answer to another account goes
// nowhere but into that account.
//
// The lists here are exact: what no list names is refused, also what a later
// version of the pool adds.
package access

import (
	"fmt"
	"slices"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/internal/subject"
	"github.com/penstock-run/penstock/jobs/operation"
)

// Pool is the account that has the streams.
const Pool = "PENSTOCK"

// Layout is where the pool's subjects are.
type Layout struct {
	Prefix string // of every subject; default "penstock.v1"
	Tenant string // for which submitters publish; default "default"
}

// A Share is something of the pool's account that a role's account sees.
type Share struct {
	Subject string // in the pool's account
	Local   string // in the role's, where it differs
	// Published: the pool publishes the messages. Otherwise the role does.
	Published bool
	// Many: a request has more than one answer.
	Many bool
	// Served: the other way round, the pool asks and the role answers.
	Served bool
}

// local is the subject in the role's account.
func (s Share) local() string {
	if s.Local != "" {
		return s.Local
	}
	return s.Subject
}

// Account is the name of the account of a role of [jobs.Roles].
func Account(role jobs.Role) string {
	switch role {
	case jobs.RoleViewer:
		return Pool + "_VIEWER"
	case jobs.RoleSubmitter:
		return Pool + "_SUBMITTER"
	case jobs.RoleWorker:
		return Pool + "_WORKER"
	}
	return Pool
}

// Inbox is where the answers to the user with a public key go. No other user of
// its role may hear them.
func Inbox(user string) string { return "_INBOX_" + user }

// May returns the roles that may publish to a subject of the bus, or ask it.
func (l Layout) May(to string) ([]jobs.Role, error) {
	var may []jobs.Role
	for _, role := range jobs.Roles {
		rights, err := l.Rights(role, "")
		if err != nil {
			return nil, err
		}
		if role.All() || slices.ContainsFunc(rights.Publish, func(pattern string) bool { return covers(pattern, to) }) {
			may = append(may, role)
		}
	}
	return may, nil
}

// Rights are what a user may do within its account. Empty lists are for the
// operator, who may do everything.
type Rights struct {
	Publish   []string
	Subscribe []string
	// Answers: it may answer each request that it gets, once.
	Answers bool
}

// Rights returns those of the user of a role with a public key.
func (l Layout) Rights(role jobs.Role, user string) (Rights, error) {
	shares, err := l.Shares(role)
	if err != nil || role.All() {
		return Rights{}, err
	}
	r := Rights{Subscribe: []string{Inbox(user) + ".>"}}
	for _, s := range shares {
		switch {
		case s.Published, s.Served:
			r.Subscribe = append(r.Subscribe, s.local())
		default:
			r.Publish = append(r.Publish, s.local())
		}
		r.Answers = r.Answers || s.Served
	}
	if role == jobs.RoleWorker {
		names, err := subject.New(l.Prefix)
		if err != nil {
			return Rights{}, err
		}
		// Workers wake each other, within their account.
		r.Publish = append(r.Publish, names.WakeAgain("*", "*"))
	}
	return r, nil
}

// Shares returns what the account of a role sees of the pool's. The operator is
// in there.
func (l Layout) Shares(role jobs.Role) ([]Share, error) {
	names, err := subject.New(l.Prefix)
	if err != nil {
		return nil, err
	}
	tenant := l.Tenant
	if tenant == "" {
		tenant = "default"
	}
	if err := jobs.CheckToken("tenant", tenant); err != nil {
		return nil, err
	}
	switch role {
	case "", jobs.RoleOperator:
		return nil, nil
	case jobs.RoleViewer:
		return viewer(names), nil
	case jobs.RoleSubmitter:
		return append(requests(names, role), Share{Subject: names.Submit(tenant)}), nil
	case jobs.RoleWorker:
		return worker(names), nil
	}
	return nil, fmt.Errorf("role %s has no account on the bus", role)
}

// requests are those that the table of operations gives to a role.
func requests(names subject.Names, role jobs.Role) []Share {
	var shares []Share
	for _, row := range operation.All() {
		if row.Allows(role) {
			shares = append(shares, Share{Subject: names.API(row.Name)})
		}
	}
	return shares
}

// viewer reads what a pool tells of its jobs. The streams are named one by one:
// not the intake, which holds jobs that are not checked yet, nor the queues.
func viewer(names subject.Names) []Share {
	shares := append(requests(names, jobs.RoleViewer),
		Share{Subject: names.StoredAll(), Published: true}, Share{Subject: names.ChangedAll(), Published: true})
	return append(shares, reads(
		subject.KVStream(subject.Jobs), subject.KVStream(subject.Specs), subject.KVStream(subject.Settings),
		subject.KVStream(subject.Results), subject.KVStream(subject.Workers), subject.KVStream(subject.Permits), subject.KVStream(subject.Timetable),
		"OBJ_"+subject.Artifacts, subject.Events, subject.Dead)...)
}

// worker claims, and writes what becomes of the jobs it has claimed. The broker
// cannot tell which those are: see docs/how-to/security-bus.md. No stream that it may
// publish to has rollups, which remove what others have written; so it writes no
// schedules.
func worker(names subject.Names) []Share {
	shares := slices.Concat(
		reads(subject.KVStream(subject.Results), "OBJ_"+subject.Artifacts, subject.Events),
		looks(subject.KVStream(subject.Jobs), subject.KVStream(subject.Specs), subject.KVStream(subject.Settings),
			subject.KVStream(subject.Permits), subject.KVStream(subject.Leader), subject.KVStream(subject.Workers)))
	return append(shares,
		api("STREAM.INFO."+subject.KVStream(subject.Settings), false), // which classes there are
		api("STREAM.INFO."+subject.KVStream(subject.Jobs), false),     // the broker's clock, by which workers are silent
		// One by one: without the subject it would be a list of all of them.
		api("DIRECT.GET."+subject.KVStream(subject.Jobs)+".>", false),
		api("DIRECT.GET."+subject.KVStream(subject.Specs)+".>", false),
		api("CONSUMER.INFO.*."+subject.Consumer, false),
		api("CONSUMER.MSG.NEXT.*."+subject.Consumer, true),
		Share{Subject: "$JS.ACK.*." + subject.Consumer + ".>"},
		Share{Subject: subject.Key(subject.Jobs, "*.*")},
		Share{Subject: subject.Key(subject.Workers, "*")},
		Share{Subject: subject.Touched("*")},
		Share{Subject: subject.Key(subject.Permits, "*")},
		Share{Subject: subject.Key(subject.Results, "*.*.result")},
		Share{Subject: subject.Key(subject.Results, "*.*.salvage")},
		Share{Subject: subject.Key(subject.Results, "*.*.capsule")},
		Share{Subject: subject.Key(subject.Results, "*.*.delivery")},
		Share{Subject: subject.Key(subject.Results, "*.*.a.*")},
		Share{Subject: "$O." + subject.Artifacts + ".C.*"},
		Share{Subject: "$O." + subject.Artifacts + ".M.*"},
		Share{Subject: names.SessionEvents("*", "*")},
		Share{Subject: names.DeadLetter("*", "*", "*")},
		Share{Subject: names.Control("*", "*"), Served: true},
		Share{Subject: names.Terminals("*", "*"), Served: true},
		Share{Subject: names.Drain("*"), Published: true},
		Share{Subject: names.WakeClass("*"), Published: true})
}

// reads lets an account read streams: what there is, in ranges, and one by one.
func reads(streams ...string) []Share {
	shares := looks(streams...)
	for _, stream := range streams {
		shares = append(shares, api("STREAM.INFO."+stream, false), api("DIRECT.GET."+stream, true))
	}
	return shares
}

// looks lets an account read single messages, by subject or sequence.
func looks(streams ...string) []Share {
	var shares []Share
	for _, stream := range streams {
		shares = append(shares, api("STREAM.MSG.GET."+stream, false))
	}
	return shares
}

func api(verb string, many bool) Share {
	return Share{Subject: "$JS.API." + verb, Local: subject.RoleAPI + "." + verb, Many: many}
}
