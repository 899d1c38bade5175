import type { AddressInfo } from 'node:net'
import type { FastifyInstance } from 'fastify'
import { parseAddress, type Address } from './config/schema/address.ts'

/** Reads an address that the config's schema has let through. */
export function addressOf(text: string): Address {
  const address = parseAddress(text)
  if (address === undefined) throw new Error(`not an address: ${text}`)
  return address
}

/** Why an address cannot be bound, in words. */
const causes: Readonly<Record<string, string>> = {
  EADDRINUSE: 'something else listens there already',
  EACCES: 'this user may not bind that port',
  EADDRNOTAVAIL: 'this machine has no such address',
  ENOTFOUND: 'there is no such host',
}

/** Resolves to the base URL of a plane that listens; rejects, naming the `key` that sets the address, when it cannot be bound. */
export async function listenAt({ host, port }: Address, app: FastifyInstance, key: string): Promise<string> {
  try {
    await app.listen({ host, port })
  } catch (error) {
    const { code = '', message } = error as NodeJS.ErrnoException
    const cause = causes[code] ?? message
    throw new Error(`cannot listen on ${host}, port ${port}: ${cause}; ${key} says where, or --port`, {
      cause: error,
    })
  }
  const { address, family, port: bound } = app.server.address() as AddressInfo
  return `http://${family === 'IPv6' ? `[${address}]` : address}:${bound}`
}
