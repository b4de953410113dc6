//! Single flight.

use std::time::Duration;

use tokio::time::Instant;

use super::Flights;
use crate::ids::{AgentId, OrgId};
use crate::session::{ChainHash, Lane, LaneKey, SessionKey};

fn lane(id: &str) -> LaneKey {
    LaneKey {
        session: SessionKey {
            org: OrgId::from_bytes([1; 16]),
            agent: AgentId::from_bytes([2; 16]),
            user: None,
            id: id.parse().unwrap(),
        },
        lane: Lane::new("openai", "gpt-4o"),
    }
}

fn soon() -> Instant {
    Instant::now() + Duration::from_millis(40)
}

#[tokio::test(start_paused = true)]
async fn one_computes_while_the_others_wait_until_their_deadline() {
    let (flights, lane) = (Flights::default(), lane("trip"));
    let turn = Some(ChainHash::from_bytes([1; 16]));
    let first = flights.enter(&lane, turn, soon()).await.unwrap();
    let began = Instant::now();
    assert!(flights.enter(&lane, turn, soon()).await.is_none());
    assert_eq!(began.elapsed(), Duration::from_millis(40));
    let (second, ()) = tokio::join!(flights.enter(&lane, turn, soon()), async { drop(first) });
    let second = second.expect("the right is passed on");
    assert!(flights.enter(&lane, turn, soon()).await.is_none());
    drop(second);
    assert!(flights.enter(&lane, turn, soon()).await.is_some());
}

#[tokio::test(start_paused = true)]
async fn other_turns_and_other_lanes_wait_for_nobody() {
    let (flights, trip) = (Flights::default(), lane("trip"));
    let turn = |n| Some(ChainHash::from_bytes([n; 16]));
    let mut under_way = Vec::new();
    for (lane, turn) in [
        (&trip, turn(1)),
        (&trip, turn(2)),
        (&trip, None),
        (&lane("trap"), turn(1)),
    ] {
        under_way.push(flights.enter(lane, turn, soon()).await.expect("at once"));
    }
}
