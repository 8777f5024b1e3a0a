package schema

// Secretable is literal text, or a reference to a secret with a literal prefix (contract, "Reading the tables").
type Secretable struct {
	Text   string
	Secret *SecretRef // nil = Text
}

// SecretRef names a secret; it is resolved at dispatch in the namespace of the object that holds it, and never stored.
type SecretRef struct {
	Name   string
	Key    string
	Prefix string
}

// Target is a declared endpoint (contract 1.9). Exactly one of HTTP and GRPC is set.
type Target struct {
	Metadata       Metadata
	HTTP           *HTTPTarget
	GRPC           *GRPCTarget
	DefaultTimeout Millis   // 1–600,000
	UsableFrom     []string // namespaces, or "*"; nil = the namespaces of its own project
}

// HTTPTarget is the http part of a Target.
type HTTPTarget struct {
	BaseURI          string
	Headers          map[string]Secretable
	MaxRedirects     int   // 0–10
	MaxResponseBytes int64 // 1024–5,242,880
}

// GRPCTarget is the grpc part of a Target. Descriptors is the compiled, deterministic FileDescriptorSet without source
// info; it stands in the digest instead of file names.
type GRPCTarget struct {
	Address       string
	Service       string
	ProtoFiles    []string // as written; not part of the canonical form
	DescriptorSet string   // as written; not part of the canonical form
	IncludeDirs   []string // as written; not part of the canonical form
	Descriptors   []byte
	TLS           bool
	Metadata      map[string]Secretable
}

// Address implements Object.
func (o *Target) Address() Address { return Address{KindTarget, o.Metadata.Namespace, o.Metadata.Name} }

// Meta implements Object.
func (o *Target) Meta() Metadata { return o.Metadata }
func (*Target) isObject()        {}
