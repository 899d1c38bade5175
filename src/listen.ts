import type { AddressInfo } from 'node:net'
import type { FastifyInstance } from 'fastify'
import { parseAddress, type Address } from './config/schema/address.ts'

/** Reads an address that the config's schema has let through. */
export function addressOf(text: string): Address {
  const address = parseAddress(text)
  if (address === undefined) throw new Error(`not an address: ${text}`)
  return address
}

/** Resolves to the base URL of a plane that listens; rejects when its address cannot be bound. */
export async function listenAt({ host, port }: Address, app: FastifyInstance): Promise<string> {
  await app.listen({ host, port })
  const { address, family, port: bound } = app.server.address() as AddressInfo
  return `http://${family === 'IPv6' ? `[${address}]` : address}:${bound}`
}
