/**
 * Preloaded into a foreign program (`node --import`): forces listening on the loopback address only and blocks all
 * other connections, whatever the program's settings. Changes nothing else.
 */
import { BlockList, isIP, Server, Socket } from 'node:net'

interface Where {
  readonly host?: string
  readonly port?: number | string
  readonly path?: string | null
}

const loopback = new BlockList()
loopback.addSubnet('127.0.0.0', 8, 'ipv4')
loopback.addAddress('::1', 'ipv6')

const isLoopback = (host: string) =>
  host === 'localhost' || (isIP(host) !== 0 && loopback.check(host, isIP(host) === 4 ? 'ipv4' : 'ipv6'))

const listen = Reflect.get(Server.prototype, 'listen') as (...args: unknown[]) => Server
Server.prototype.listen = function (this: Server, ...args: unknown[]) {
  const [first, ...others] = args
  const done = others.filter((arg) => typeof arg === 'function')
  if (typeof first === 'object' && first !== null)
    return listen.call(
      this,
      'path' in first && typeof first.path === 'string' ? first : { ...first, host: '127.0.0.1' },
      ...done,
    )
  return listen.call(this, { port: Number(first), host: '127.0.0.1' }, ...done)
}

/** A port without a listener: blocked connections go there and are refused, as by an absent machine. */
const NOBODY = { host: '127.0.0.1', port: 9 }

const connect = Reflect.get(Socket.prototype, 'connect') as (...args: unknown[]) => Socket
Socket.prototype.connect = function (this: Socket, ...args: unknown[]) {
  // node:net passes the arguments of its callers on as one list.
  const given = (Array.isArray(args[0]) ? args[0] : args) as unknown[]
  const [first, second] = given
  const where: Where =
    typeof first === 'object' && first !== null ? first : typeof second === 'string' ? { host: second } : {}
  if (typeof where.path !== 'string' && !isLoopback(where.host ?? 'localhost')) {
    given.splice(0, typeof second === 'string' ? 2 : 1, { ...where, ...NOBODY })
  }
  return connect.apply(this, args)
}
