import { readFileSync } from 'node:fs'

/** Files in PEM, by what they hold. */
export interface TlsOptions {
  readonly ca?: string | undefined
  readonly cert?: string | undefined
  readonly key?: string | undefined
  readonly rejectUnauthorized: boolean
}

/** The options of a socket, with the contents of the files that are named. */
export function readTls(tls: TlsOptions | undefined) {
  if (tls === undefined) return {}
  const { ca, cert, key, rejectUnauthorized } = tls
  return {
    rejectUnauthorized,
    ...(ca === undefined ? {} : { ca: readFileSync(ca) }),
    ...(cert === undefined ? {} : { cert: readFileSync(cert) }),
    ...(key === undefined ? {} : { key: readFileSync(key) }),
  }
}
