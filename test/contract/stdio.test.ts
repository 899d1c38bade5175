import { stdioServer } from '../../src/config/schema/server-schema.ts'
import { StdioUpstream } from '../../src/upstreams/stdio/stdio.ts'
import { systemClock } from '../../src/mesh/clock.ts'
import { capableClient } from '../support/caller.ts'
import { fixtureCommand } from '../support/fixture.ts'
import { silent } from '../support/log.ts'
import { contract } from './contract.ts'
import { MAX_REPLY, type MakeSubject } from './subject.ts'

for (const sharing of ['shared', 'per_session'] as const) {
  const make: MakeSubject = (fixture) => {
    const config = stdioServer.parse({ ...fixtureCommand(fixture, 'stdio'), sharing, maxReply: MAX_REPLY })
    const options = {
      server: 'test',
      config,
      initializeParams: capableClient,
      clock: systemClock,
      log: silent,
    }
    return Promise.resolve({ upstream: new StdioUpstream(options), stop: () => Promise.resolve() })
  }
  contract(`stdio, ${sharing}`, make, { shared: sharing === 'shared' })
}
