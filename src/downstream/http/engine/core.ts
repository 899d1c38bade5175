import type { IncomingHttpHeaders, Server } from 'node:http'
import type { Socket } from 'node:net'
import type { Millis } from '../../../mesh/clock.ts'
import type { HttpReply } from '../../../wire/http-reply.ts'
import type { UsualRequest } from '../../../wire/http-request.ts'
import type { ServerGuards } from '../server.ts'
import type { RequestBody } from './request-body.ts'

/** The endpoint of a request: the name of its server; undefined for all servers together. */
export interface Target {
  readonly server: string | undefined
}

/** Decides which usual requests the engine takes, and handles them. */
export interface UsualRoute {
  /** Largest body, in bytes, that `take` takes. */
  readonly largestWhole: number
  /** Returns the target of a request, by its head alone; undefined leaves the request to Node's server. */
  targetOf(request: UsualRequest): Target | undefined
  /** False leaves the request to Node's server now. */
  mayTake(target: Target, headers: IncomingHttpHeaders): boolean
  /** Handles a request with its body: the bytes of `chunk` from `from` to `to`, which are valid during the call only. */
  take(target: Target, reply: HttpReply, client: string, chunk: Buffer, from: number, to: number): void
  /** Handles a request whose body arrives in parts. */
  takeParts(target: Target, reply: HttpReply, client: string, body: RequestBody): void
}

/** The parts of the engine that its connections use. */
export interface EngineCore {
  readonly server: Server
  readonly route: UsualRoute
  readonly quotas: ServerGuards['quotas']
  readonly unread: ServerGuards['unread']
  /** The line `Date` of a reply. */
  readonly dateLine: string
  /** The line `Keep-Alive` of a reply. */
  readonly keepAliveLine: string
  /** The lines `Date`, `Connection` and `Keep-Alive` of a reply whose connection stays open. */
  readonly keptLines: string
  /** Removes a connection that has closed or that Node's server gets. */
  forget(connection: OpenConnection): void
  /** Gives a connection to Node's server. */
  handOver(socket: Socket): void
}

/** A connection that the engine reads. */
export interface OpenConnection {
  /** True when no request is open. */
  readonly isIdle: boolean
  /** True after the first request. */
  readonly isUsed: boolean
  /** How long the checks have found the connection without a request, in milliseconds. */
  idleMs: Millis
  destroy(): void
  /** Ends a connection that sent no request in time. */
  timeOut(): void
}
