// The program that lists what a build of Penstock contains, for releases. It is a module of
// its own, since those who import a package of Penstock need none of this.
module github.com/penstock-run/penstock/deploy/release

go 1.26

require (
	github.com/CycloneDX/cyclonedx-go v0.9.3
	github.com/google/licensecheck v0.3.1
	github.com/santhosh-tekuri/jsonschema/v6 v6.0.3
)

require golang.org/x/text v0.14.0 // indirect
