import type { Server } from 'node:http'
import type { Socket } from 'node:net'
import type { Clock, Millis } from '../../../mesh/clock.ts'
import type { ServerGuards } from '../server.ts'
import { Connection } from './connection.ts'
import type { EngineCore, OpenConnection, UsualRoute } from './core.ts'

export interface EngineParts extends ServerGuards {
  readonly clock: Clock
  readonly route: UsualRoute
}

/** Interval between checks for idle connections, in milliseconds: a connection may be idle for this much longer. */
const LOOK_MS: Millis = 5_000

/**
 * Reads the usual requests of agents, without the objects and the parser of `node:http`. Each connection begins here;
 * the first unusual request on it gives it to Node's server for good.
 */
export class HttpEngine implements EngineCore {
  readonly server: Server
  readonly route: UsualRoute
  readonly quotas: ServerGuards['quotas']
  readonly unread: ServerGuards['unread']
  readonly handOver: (socket: Socket) => void
  readonly #clock: Clock
  readonly #connections = new Set<OpenConnection>()
  #isLooking = false
  #dateLine = ''
  #keptLines = ''

  /** `handOver` gives a connection to Node's `server`. The server closes connections of the engine with its own. */
  constructor(
    server: Server,
    handOver: (socket: Socket) => void,
    { clock, route, quotas, unread }: EngineParts,
  ) {
    this.server = server
    this.handOver = handOver
    this.route = route
    this.quotas = quotas
    this.unread = unread
    this.#clock = clock
    const closeIdle = server.closeIdleConnections
    server.closeIdleConnections = () => {
      for (const connection of this.#connections)
        if (connection.isUsed && connection.isIdle) connection.destroy()
      closeIdle.call(server)
    }
    const closeAll = server.closeAllConnections
    server.closeAllConnections = () => {
      for (const connection of this.#connections) connection.destroy()
      closeAll.call(server)
    }
  }

  /** Takes a new connection. */
  readonly begin = (socket: Socket): void => {
    this.#connections.add(new Connection(this, socket))
    if (!this.#isLooking) this.#lookLater()
  }

  forget(connection: OpenConnection): void {
    this.#connections.delete(connection)
  }

  get dateLine(): string {
    if (this.#dateLine === '') this.#makeDate()
    return this.#dateLine
  }

  get keptLines(): string {
    if (this.#keptLines === '') this.#makeDate()
    return this.#keptLines
  }

  get keepAliveLine(): string {
    return `Keep-Alive: timeout=${Math.floor(this.server.keepAliveTimeout / 1_000)}\r\n`
  }

  /** Makes the lines with the date, for the rest of the second. */
  #makeDate(): void {
    const now = this.#clock.wall()
    this.#dateLine = `Date: ${new Date(now).toUTCString()}\r\n`
    this.#keptLines = `${this.#dateLine}Connection: keep-alive\r\n${this.keepAliveLine}`
    this.#clock.after(1_000 - (now % 1_000), () => (this.#dateLine = this.#keptLines = ''))
  }

  /** Schedules the next check of all connections. One timer for all costs a request nothing. */
  #lookLater(): void {
    this.#isLooking = true
    this.#clock.after(LOOK_MS, () => {
      this.#isLooking = false
      const { keepAliveTimeout, headersTimeout } = this.server
      for (const connection of this.#connections) {
        if (!connection.isIdle) continue
        // The first check comes less than an interval after the last byte, so it does not count.
        const wasIdleMs = connection.idleMs
        connection.idleMs += LOOK_MS
        if (!connection.isUsed && wasIdleMs >= headersTimeout) connection.timeOut()
        else if (connection.isUsed && wasIdleMs >= keepAliveTimeout) connection.destroy()
      }
      if (this.#connections.size > 0) this.#lookLater()
    })
  }
}
