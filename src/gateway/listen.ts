import { lookup } from 'node:dns/promises'
import { createServer, type AddressInfo, type Server } from 'node:net'
import type { FastifyInstance } from 'fastify'
import { parseAddress, type Address } from '../config/schema/address.ts'

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
  if (host === 'localhost') await listenOnOtherAddresses(app.server)
  const { address, family, port: bound } = app.server.address() as AddressInfo
  return `http://${family === 'IPv6' ? `[${address}]` : address}:${bound}`
}

/**
 * `localhost` has an address of each family: what comes to another one than that which the server has is taken by the same
 * server, whose limits hold for both. An address that cannot be bound is left out.
 */
async function listenOnOtherAddresses(server: Server): Promise<void> {
  const { address, port } = server.address() as AddressInfo
  // It is bound already: a name that cannot be looked up again has no other address.
  for (const other of await lookup('localhost', { all: true }).catch(() => [])) {
    if (other.address === address) continue
    const beside = createServer({ allowHalfOpen: true, noDelay: true }, (socket) => {
      if (server.listening) server.emit('connection', socket)
      else socket.destroy()
    })
    server.once('close', () => beside.close())
    await new Promise<void>((resolve) => {
      beside.once('error', () => resolve())
      beside.listen(port, other.address, resolve)
    })
  }
}
