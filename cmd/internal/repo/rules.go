package repo

// Rule is one thing that is true of the repository.
type Rule struct {
	Name  string
	Check func(*Tree) []Finding
}

// Rules are all rules, in the order in which ARCHITECTURE.md and
// CONTRIBUTING.md give them.
var Rules = append([]Rule{
	{"imports", imports},
	{"package comments", packageComments},
	{"package names", packageNames},
	{"only programs", onlyPrograms},
	{"marked jails", markedJails},
	{"silent libraries", silentLibraries},
	{"one way out", oneWayOut},
	{"contexts in structs", contextsInStructs},
	{"goroutine leaks", goroutineLeaks},
	{"open ends", openEnds},
	{"module files", moduleFiles},
	{"links", links},
	{"steps", steps},
	{"exceptions", neededExceptions},
}, limitRules()...)

func limitRules() []Rule {
	var rules []Rule
	for _, l := range limits {
		rules = append(rules, Rule{l.rule, l.check})
	}
	return rules
}
