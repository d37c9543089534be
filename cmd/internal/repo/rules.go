package repo

// Rule is one thing that is true of the repository.
type Rule struct {
	Name  string
	Check func(*Tree) []Finding
}

// Rules are all rules, in the order in which ARCHITECTURE.md and
// CONTRIBUTING.md give them.
var Rules = []Rule{
	{"imports", imports},
	{"package comments", packageComments},
	{"package names", packageNames},
	{"sizes", sizes},
	{"exported names", exportedNames},
	{"interfaces", interfaces},
	{"parameters", parameters},
	{"only programs", onlyPrograms},
	{"silent libraries", silentLibraries},
	{"one way out", oneWayOut},
	{"contexts in structs", contextsInStructs},
	{"goroutine leaks", goroutineLeaks},
	{"open ends", openEnds},
	{"module files", moduleFiles},
	{"links", links},
}

// MaxFunc and the others are the sizes that ARCHITECTURE.md names.
const (
	MaxFunc      = 60
	MaxFile      = 500
	MaxExported  = 25
	MaxMethods   = 3
	MaxParameter = 4
)

// moreExported are packages that may export more names than others, and why.
var moreExported = map[string]int{
	"jobs": 150, // values only: each word of the documented formats is a name
}
