import { httpServer } from '../../src/config/schema/server-schema.ts'
import { systemClock } from '../../src/mesh/clock.ts'
import { HttpUpstream } from '../../src/upstreams/http/http.ts'
import { SessionStates } from '../../src/upstreams/shared/session-state.ts'
import { TaskBinding } from '../../src/upstreams/shared/task-binding.ts'
import { startFixture } from '../support/fixture.ts'
import { contract } from './contract.ts'
import { MAX_REPLY } from './subject.ts'

contract('http', async (fixture) => {
  const { url, stop } = await startFixture(fixture, 'http')
  const config = httpServer.parse({ urls: [url], maxReply: MAX_REPLY })
  const upstream = new HttpUpstream({
    ...config,
    server: 'test',
    url,
    clock: systemClock,
    states: new SessionStates(),
    tasks: new TaskBinding(systemClock),
  })
  return { upstream, stop }
})
