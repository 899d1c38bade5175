import type { LookupFunction, Socket } from 'node:net'
import { Duplex } from 'node:stream'
import { buildConnector } from 'undici'
import type { HttpServerConfig } from '../../config/schema/server-schema.ts'
import type { CertificateFlaw, ConnectFailure } from '../../mesh/wire-shape.ts'
import { gatewayError, type GatewayError } from '../../mesh/errors.ts'
import { transportError } from './http-reply.ts'

/** Node's error code for each certificate flaw. */
const untrusted: Readonly<Record<CertificateFlaw, string>> = {
  expired: 'CERT_HAS_EXPIRED',
  self_signed: 'DEPTH_ZERO_SELF_SIGNED_CERT',
  wrong_host: 'ERR_TLS_CERT_ALTNAME_INVALID',
}

/**
 * Returns the error of a connection to `url` that fails as `failure` demands. The error comes from a real connection
 * attempt that never leaves the process; only a certificate error is made up. A `name` failure needs a URL with a host
 * name, the other failures an https URL. Undefined for a certificate failure if the config trusts all certificates.
 * Never rejects.
 */
export function failToConnect(
  { timeouts, tls }: Pick<HttpServerConfig, 'timeouts' | 'tls'>,
  url: string,
  failure: ConnectFailure,
): Promise<GatewayError> | undefined {
  const { connect: timeout } = timeouts
  switch (failure.of) {
    case 'name': {
      const { code, after } = failure
      const lookup: LookupFunction = (name, _, done) => {
        const error = Object.assign(new Error(`getaddrinfo ${code} ${name}`), { code })
        void after.then(() => done(error, ''))
      }
      return errorOf(buildConnector({ timeout, lookup }), url)
    }
    case 'handshake':
      return errorOf(buildConnector({ timeout }), url, new RefusingPeer())
    case 'certificate': {
      if (tls?.rejectUnauthorized === false) return undefined
      const error = Object.assign(new Error(), { code: untrusted[failure.flaw] })
      return Promise.resolve(transportError(error, false))
    }
  }
}

/** Resolves to the error of a connection attempt that must fail. */
function errorOf(connect: buildConnector.connector, url: string, peer?: Duplex): Promise<GatewayError> {
  const { hostname, host, protocol, port } = new URL(url)
  // undici only writes to this socket and reads from it.
  const httpSocket = peer as Socket | undefined
  const target = { hostname, host, protocol, port, ...(httpSocket && { httpSocket }) }
  return new Promise((resolve) => {
    connect(target, (error, socket) => {
      socket?.destroy()
      resolve(
        error === null
          ? gatewayError('internal', 'the connection did not fail')
          : transportError(error, false),
      )
    })
  })
}

/** The fatal alert `handshake_failure`, sent before a TLS version is agreed (RFC 8446, section 6). */
const handshakeFailure = Buffer.from([0x15, 0x03, 0x03, 0x00, 0x02, 0x02, 0x28])

/** A peer that refuses all handshakes. */
class RefusingPeer extends Duplex {
  override _read(): void {}

  override _write(_: Buffer, __: BufferEncoding, done: () => void): void {
    this.push(handshakeFailure)
    this.push(null)
    done()
  }
}
