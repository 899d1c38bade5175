/** What a server's certificate may be refused for. */
export type CertificateFlaw = 'expired' | 'self_signed' | 'wrong_host'

/** How a connection fails before anything is sent over it. */
export type ConnectFailure =
  /** The host's name cannot be looked up; the resolver says so once `after` has settled, which never rejects. */
  | { readonly of: 'name'; readonly code: 'ENOTFOUND' | 'EAI_AGAIN'; readonly after: Promise<unknown> }
  /** The server's certificate is not to be trusted. */
  | { readonly of: 'certificate'; readonly flaw: CertificateFlaw }
  /** The server refuses the TLS handshake. */
  | { readonly of: 'handshake' }
