//! `/v1/rebalance`: the rebalancer's plan, stored or computed now. Any node accepts the request and passes it to the rebalancer.

use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::extract::rejection::JsonRejection;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use thicket_node::{RebalanceCounts, RebalanceError, RebalanceReport, RebalanceWish};
use tokio::time::sleep;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::answer::{Answer, bad_body, failure, silent};
use super::{ApiState, Inspector, silence::Silence};
use crate::api::redirection::RebalanceRequest;

/// Time between two checks whether the rebalancer has answered.
const LOOK: Duration = Duration::from_millis(20);
/// Checks before the request fails: eight seconds.
const LOOKS: usize = 400;

pub(super) fn router() -> OpenApiRouter<ApiState> {
    OpenApiRouter::new().routes(routes!(show, plan))
}

/// The last plan of the rebalancer, which clients should move to other nodes, and its progress.
#[utoipa::path(
    get, path = "/v1/rebalance", tag = "placement", operation_id = "rebalance",
    responses(
        (status = 200, description = "The last plan", body = RebalanceReport),
        (status = 409, description = "Rebalancing is off, or several nodes have the name in `node`"),
    ),
)]
async fn show(State(inspector): State<Inspector>) -> Answer<RebalanceReport> {
    ask(&inspector, RebalanceWish::Show).await
}

/// Makes a new plan, and moves the clients unless it is a dry run.
#[utoipa::path(
    post, path = "/v1/rebalance", tag = "placement", operation_id = "plan", request_body = RebalanceRequest,
    responses(
        (status = 200, description = "The plan", body = RebalanceReport),
        (status = 409, description = "Rebalancing is off, or clients are being moved already"),
    ),
)]
async fn plan(
    State(inspector): State<Inspector>,
    body: Result<Json<RebalanceRequest>, JsonRejection>,
) -> Answer<RebalanceReport> {
    let Json(request) = body.map_err(|rejection| bad_body(&rejection))?;
    let wish = if request.dry_run {
        RebalanceWish::DryRun
    } else {
        RebalanceWish::Move
    };
    ask(&inspector, wish).await
}

async fn ask(inspector: &Inspector, wish: RebalanceWish) -> Answer<RebalanceReport> {
    let asked = inspector.order_hub(move |hub, now| hub.operate(now).ask_rebalance(wish));
    let number = asked.await.map_err(silent)?;
    for _ in 0..LOOKS {
        let looked = inspector.order_hub(move |hub, now| hub.operate(now).rebalance_answer(number));
        match looked.await.map_err(silent)? {
            Some(Ok(report)) => return Ok(Json(report)),
            Some(Err(error)) => return Err(refused(&error)),
            None => sleep(LOOK).await,
        }
    }
    Err(refused(&RebalanceError::Unsure))
}

fn refused(error: &RebalanceError) -> Response {
    let status = match error {
        RebalanceError::Off | RebalanceError::Moving => StatusCode::CONFLICT,
        RebalanceError::Unsure => StatusCode::SERVICE_UNAVAILABLE,
    };
    failure(status, &error.to_string()).into_response()
}

impl Inspector {
    /// Results of moves at this node.
    pub(super) async fn rebalance_counts(&self) -> Result<RebalanceCounts, Silence> {
        self.of_hub(|hub| hub.rebalance_counts().clone()).await
    }
}
