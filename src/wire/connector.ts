import type { Duplex } from 'node:stream'
import { buildConnector } from 'undici'

/** Returns undici's connector with these options. Its sockets hold nothing of their connection attempt. */
export function socketsOf(options: buildConnector.BuildOptions = {}): buildConnector.connector {
  const connect = buildConnector(options)
  return (target, done) => {
    connect(target, (error, socket) => {
      // Without a connection the second argument is missing, whatever its type says.
      if (error !== null) return done(error, null)
      forgetConnecting(socket)
      done(null, socket)
    })
  }
}

/** Returns a connector for undici's clients, changed so that a server can end its connection at any time. */
export function connectorOf(options: buildConnector.BuildOptions = {}): buildConnector.connector {
  const connect = socketsOf(options)
  return (target, done) => {
    connect(target, (error, socket) => {
      if (error !== null) return done(error, null)
      mayEndPaused(socket)
      done(null, socket)
    })
  }
}

/**
 * Removes the error listener left behind by undici's connector. The listener retains the whole connection attempt with
 * its timer and callback. At this moment, it is the last listener; on an open connection, it does nothing. Thousands of
 * connections may stay open as long as sessions listen.
 */
function forgetConnecting(connection: Duplex): void {
  const listener = connection.listeners('error').at(-1)
  if (listener !== undefined) connection.off('error', listener as () => void)
}

/** undici's reply reader of a connection. */
interface Parser {
  paused: boolean
  resume(): void
}

/**
 * Lets a connection of undici end while its reply is paused. Otherwise undici 7 fails an assertion that nobody can
 * catch, and a server can cause this just by closing the connection. Call before undici listens to the connection.
 */
export function mayEndPaused(connection: Duplex): void {
  // Shared functions, because thousands of connections may exist.
  connection.on('end', goOn)
  connection.on('error', wake)
  connection.on('close', wake)
}

/** Resumes the parser after an orderly end: all bytes are read, and only the end itself is left. */
function goOn(this: Duplex): void {
  parserOf(this)?.resume()
}

function wake(this: Duplex): void {
  const parser = parserOf(this)
  if (parser !== undefined) parser.paused = false
}

function parserOf(connection: Duplex): Parser | undefined {
  const name = Object.getOwnPropertySymbols(connection).find(({ description }) => description === 'parser')
  const held = connection as Duplex & Readonly<Record<symbol, Parser | null | undefined>>
  return name === undefined ? undefined : (held[name] ?? undefined)
}
